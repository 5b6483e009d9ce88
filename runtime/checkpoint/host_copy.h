#pragma once
// A shard in host memory, copied from tensors as they are now. CPU tensors are copied at once. Device tensors
// are cloned on the device, in the order of the caller's work, and copied to pinned memory in a separate
// stream of each device while the caller computes. The device memory of each clone is freed when its copy is
// done, whether or not the caller waits for it.

#include <c10/core/Event.h>

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"

namespace lockstep::checkpoint {

class HostCopy {
 public:
  // Call from the thread that computes the tensors. Throws what LibTorch throws, for example for lack of
  // memory. `spare` is a copy that is no longer needed, or null: its memory is reused, because new memory
  // costs as much as the copying, or freed before other memory is allocated.
  HostCopy(const std::vector<NamedTensor>& tensors, HostCopy* spare);

  // The bytes of the shard, after all copies have completed. One thread, which may differ from the
  // constructor's.
  [[nodiscard]] std::string_view Await();
  [[nodiscard]] const std::vector<TensorPlace>& places() const { return places_; }

 private:
  struct Move {
    at::Tensor clone;  // on the device
    at::Tensor target;
  };
  // The clones of one device.
  void Start(const std::vector<Move>& moves);

  at::Tensor shard_;
  std::vector<TensorPlace> places_;
  std::vector<c10::Event> arrived_;  // for each device
};

}  // namespace lockstep::checkpoint
