#pragma once
// Tensors as they are now, in host memory. On the CPU they are copied at once. On a device they are cloned
// there, in the order of the caller's work, and travel to pinned memory in a stream of their own while the
// caller computes; the clones are gone when they have arrived.

#include <c10/core/Event.h>

#include <memory>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"

namespace lockstep::checkpoint {

class HostCopy {
 public:
  HostCopy() = default;
  // The thread whose work the tensors come from. Throws what LibTorch throws: no memory, say. `spare`: one
  // that nobody needs any more, or null; its memory is used again, for new memory costs as much as the
  // copying.
  HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare);

  // When they have arrived. One thread, which may be another.
  [[nodiscard]] const std::vector<NamedTensor>& Await();

 private:
  void StartMove(c10::Device device);
  [[nodiscard]] static at::Tensor TargetFor(const at::Tensor& tensor, std::size_t index, HostCopy* spare);

  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> clones_;  // on their way
  std::unique_ptr<c10::Event> arrived_;
};

}  // namespace lockstep::checkpoint
