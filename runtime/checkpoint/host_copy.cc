#include "runtime/checkpoint/host_copy.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::checkpoint {

HostCopy::HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& named : tensors) {
    at::Tensor target = TargetFor(named.tensor, tensors_.size(), spare);
    if (named.tensor.is_cpu()) {
      target.copy_(named.tensor);
    } else {
      clones_.push_back(named.tensor.detach().clone(at::MemoryFormat::Contiguous));
    }
    tensors_.push_back({named.name, std::move(target)});
  }
  if (!clones_.empty()) StartMove(clones_.front().device());
}

at::Tensor HostCopy::TargetFor(const at::Tensor& tensor, std::size_t index, HostCopy* spare) {
  if (spare != nullptr && index < spare->tensors_.size()) {
    at::Tensor& used = spare->tensors_[index].tensor;
    if (used.sizes() == tensor.sizes() && used.scalar_type() == tensor.scalar_type()) return std::move(used);
  }
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(!tensor.is_cpu()));
}

void HostCopy::StartMove(c10::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream stream = streams.getStreamFromGlobalPool(device);
  c10::Event cloned(device.type());
  cloned.record(streams.getStream(device));
  cloned.block(stream);
  const c10::StreamGuard in_its_own(stream);
  auto clone = clones_.begin();
  for (const NamedTensor& named : tensors_) {
    if (!named.tensor.is_pinned()) continue;
    clone->record_stream(stream);
    named.tensor.copy_(*clone++, /*non_blocking=*/true);
  }
  arrived_ = std::make_unique<c10::Event>(device.type());
  arrived_->record(stream);
}

const std::vector<NamedTensor>& HostCopy::Await() {
  if (arrived_ != nullptr) arrived_->synchronize();
  arrived_.reset();
  clones_.clear();
  return tensors_;
}

}  // namespace lockstep::checkpoint
