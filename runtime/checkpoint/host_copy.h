#pragma once
// A shard made of tensors as they are now, in host memory. Those of the CPU are copied at once. Those of a
// device are cloned there, in the order of the caller's work, and travel to pinned memory in a stream of
// their own while the caller computes. The device has the memory of each clone back when it has travelled,
// whether or not anybody waits for the copy.

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
  // copying, or freed before other memory is taken.
  HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare);

  // The bytes of the shard, when all have arrived. One thread, which may be another.
  [[nodiscard]] std::string_view Await();
  [[nodiscard]] const std::vector<TensorPlace>& places() const { return places_; }

 private:
  struct Move {
    at::Tensor clone;  // on the device
    at::Tensor target;
  };
  void Start(const std::vector<Move>& moves);

  at::Tensor shard_;
  std::vector<TensorPlace> places_;
  std::unique_ptr<c10::Event> arrived_;
};

}  // namespace lockstep::checkpoint
