#pragma once
// Runs a call that may never return on a separate thread. If it has not returned within a limit, `give_up` is
// called. ncclCommAbort is known to hang occasionally; its caller, and with it the recovery of the whole job,
// would hang too.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::comm {

class BoundedCall {
 public:
  struct Terms {
    std::string what;  // "aborting the NCCL group"
    std::chrono::milliseconds limit;
    // Gets a sentence; usually ends the process. Called on a separate thread. May be empty.
    std::function<void(const std::string&)> give_up;
  };
  // If the call hangs, what `call` captures outlives this object. An exception of the call becomes the error
  // of Wait.
  BoundedCall(Terms terms, std::function<void()> call);
  // Waits, as Wait does, if the call was started.
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  // Starts the call once, however often it is called. Any thread. Returns at once.
  void Start();
  // Starts the call and waits for its end, for at most the limit. kDeadlineExceeded: it did not end in time.
  // kAborted: it threw an exception.
  [[nodiscard]] Result<void> Wait();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace lockstep::comm
