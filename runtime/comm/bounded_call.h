#pragma once
// A call that may never return, made harmless: it runs on a thread of its own, and when it has not come back
// within a limit, `give_up` is called. ncclCommAbort is known to hang now and then; whoever called it would
// hang with it, and the recovery of the whole job.

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
    // Gets a sentence; usually ends the process. On a thread of its own. May be empty.
    std::function<void(const std::string&)> give_up;
  };
  // What `call` holds on to outlives this object where it hangs. What it throws becomes its error.
  BoundedCall(Terms terms, std::function<void()> call);
  // Waits, as Wait does, for a call that was started.
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  // Any thread, any number of times: one call. Returns at once.
  void Start();
  // Starts it and waits for its end, at most the limit. kDeadlineExceeded where it was given up, else what it
  // threw, as kAborted.
  [[nodiscard]] Result<void> Wait();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace lockstep::comm
