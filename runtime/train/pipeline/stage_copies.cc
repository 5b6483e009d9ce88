#include "runtime/train/pipeline/stage_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// Aligns each tensor in a buffer.
constexpr int64_t kAlignment = 16;

int64_t PlaceFor(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Host memory on both sides, because a device need not have memory for a second stage.
at::Tensor BufferFor(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.defined() ? PlaceFor(tensor) : 0;
  return at::zeros({bytes}, at::kByte);
}

// Consecutive views of `buffer` with the shapes of `tensors`.
std::vector<at::Tensor> ViewsOf(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> views;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      views.emplace_back();
      continue;
    }
    const at::Tensor bytes = buffer.narrow(0, begin, static_cast<int64_t>(tensor.nbytes()));
    views.push_back(bytes.view(tensor.scalar_type()).view(tensor.sizes()));
    begin += PlaceFor(tensor);
  }
  return views;
}

}  // namespace

Result<void> StageCopies::Take(comm::Communicator& communicator, const StagedState& staged,
                               const StepFacts& facts, int pod) {
  const at::NoGradGuard no_grad;
  const int world = communicator.world();
  if (world == 1) return {};
  const int distance = pod < world ? pod : 1;
  const int to = (communicator.rank() + distance) % world;
  const int from = (communicator.rank() + world - distance) % world;
  const std::vector<at::Tensor> own = staged.TensorsOf(communicator.rank());
  const std::vector<at::Tensor> others = staged.TensorsOf(from);
  at::Tensor sent;
  at::Tensor received;
  StageCopy copy{.facts = facts, .layers = staged.LayersOf(communicator.rank()), .tensors = {}};
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "copying the stage", [&] {
    sent = BufferFor(own);
    copy.tensors = ViewsOf(sent, own);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i].defined()) copy.tensors[i].copy_(own[i]);
    }
    received = BufferFor(others);
  }));
  std::vector<int64_t> rows(static_cast<std::size_t>(world), 0);
  std::vector<int64_t> sent_rows = rows;
  rows[static_cast<std::size_t>(from)] = received.numel();
  sent_rows[static_cast<std::size_t>(to)] = sent.numel();
  LOCKSTEP_TRY(communicator.AllToAll(received, rows, sent, sent_rows));
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "copying a neighbour's stage", [&] {
    const std::vector<at::Tensor> arrived = ViewsOf(received, others);
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      if (!copy.tensors[i].defined()) copy.tensors[i] = arrived[i];
    }
  }));
  const std::vector<bool> layers = staged.LayersOf(from);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    copy.layers[layer] = copy.layers[layer] || layers[layer];
  if (kept_.size() == kMost) kept_.pop_back();
  kept_.push_front(std::move(copy));
  LOCKSTEP_TRY(communicator.Barrier());
  kept_.resize(1);
  return {};
}

const StageCopy* StageCopies::Find(const Version& version) const {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const StageCopy& copy) { return copy.facts.version == version; });
  return found == kept_.end() ? nullptr : &*found;
}

}  // namespace lockstep::train
