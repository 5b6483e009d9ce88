#include "runtime/checkpoint/host_copy.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace lockstep::checkpoint {
namespace {

bool IsOnADevice(const NamedTensor& named) { return !named.tensor.is_cpu(); }

}  // namespace

HostCopy::HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare) {
  const at::NoGradGuard no_grad;
  ShardLayout layout = LayOut(tensors);
  if (spare != nullptr) {
    (void)spare->Await();  // no copy writes into its memory any more
    if (spare->shard_.numel() == layout.bytes) shard_ = spare->shard_;
    spare->shard_.reset();
  }
  if (!shard_.defined()) {
    const bool is_pinned = std::any_of(tensors.begin(), tensors.end(), IsOnADevice);
    shard_ = at::empty({layout.bytes}, at::TensorOptions(at::kByte).pinned_memory(is_pinned));
  }
  std::unordered_map<at::Device, std::vector<Move>> moves;
  std::memcpy(shard_.data_ptr(), layout.header.data(), layout.header.size());
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    at::Tensor target = ViewOf(shard_, layout.places[i]);
    const at::Tensor& source = layout.tensors[i].tensor;
    if (source.is_cpu()) {
      target.copy_(source);
    } else {
      moves[source.device()].push_back(
          {source.detach().clone(at::MemoryFormat::Contiguous), std::move(target)});
    }
  }
  places_ = std::move(layout.places);
  for (const auto& [device, of_device] : moves) Start(of_device);
}

void HostCopy::Start(const std::vector<Move>& moves) {
  const c10::Device device = moves.front().clone.device();
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream stream = streams.getStreamFromGlobalPool(device);
  c10::Event cloned(device.type());
  cloned.record(streams.getStream(device));
  cloned.block(stream);
  const c10::StreamGuard in_its_own(stream);
  for (const Move& move : moves) {
    move.clone.record_stream(stream);  // the allocator reuses the memory only after the stream has passed
    move.target.copy_(move.clone, /*non_blocking=*/true);
  }
  arrived_.emplace_back(device.type());
  arrived_.back().record(stream);
}

std::string_view HostCopy::Await() {
  for (const c10::Event& event : arrived_) event.synchronize();
  arrived_.clear();
  return {static_cast<const char*>(shard_.const_data_ptr()), static_cast<std::size_t>(shard_.numel())};
}

}  // namespace lockstep::checkpoint
