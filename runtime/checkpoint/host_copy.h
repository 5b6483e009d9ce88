#pragma once
// A shard made of tensors as they are now, in host memory. Those of the CPU are copied at once. Those of a
// device are cloned there, in the order of the caller's work, and travel to pinned memory in a stream of
// their own while the caller computes; the clones are gone when they have arrived.

#include <c10/core/Event.h>

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"

namespace lockstep::checkpoint {

class HostCopy {
 public:
  // The thread whose work the tensors come from. Throws what LibTorch throws: no memory, say. `spare`: one
  // that nobody needs any more, or null; its memory is used again, for new memory costs as much as the
  // copying.
  HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare);

  // The bytes of the shard, when all have arrived. One thread, which may be another.
  [[nodiscard]] std::string_view Await();
  [[nodiscard]] const std::vector<TensorPlace>& places() const { return places_; }

 private:
  struct Move {
    at::Tensor clone;  // on the device
    at::Tensor target;
  };
  void Start(c10::Device device);

  at::Tensor shard_;
  std::vector<TensorPlace> places_;
  std::vector<Move> moves_;  // under way
  std::unique_ptr<c10::Event> arrived_;
};

}  // namespace lockstep::checkpoint
