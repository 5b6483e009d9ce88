#include "runtime/comm/bounded_call.h"

#include <condition_variable>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::comm {

struct BoundedCall::State {
  State(Terms its_terms, std::function<void()> its_call)
      : terms(std::move(its_terms)), call(std::move(its_call)) {}

  void Run() {
    Result<void> done = CatchTorch(ErrorCode::kAborted, terms.what, call);
    End(std::move(done));
  }

  void Watch() {
    {
      MutexLock lock(mutex);
      if (ended.wait_for(lock, terms.limit,
                         [this]() LOCKSTEP_REQUIRES(mutex) { return outcome.has_value(); }))
        return;
    }
    const std::string problem = terms.what + ": no end within " + std::to_string(terms.limit.count()) + " ms";
    if (terms.give_up) terms.give_up(problem);
    End(Error{ErrorCode::kDeadlineExceeded, problem});
  }

  void End(Result<void> how) {
    const MutexLock lock(mutex);
    if (!outcome.has_value()) outcome = std::move(how);
    ended.notify_all();
  }

  Result<void> AwaitEnd() {
    MutexLock lock(mutex);
    ended.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex) { return outcome.has_value(); });
    return *outcome;
  }

  const Terms terms;
  const std::function<void()> call;
  Mutex mutex;
  std::condition_variable_any ended;
  bool started LOCKSTEP_GUARDED_BY(mutex) = false;
  std::optional<Result<void>> outcome LOCKSTEP_GUARDED_BY(mutex);
};

BoundedCall::BoundedCall(Terms terms, std::function<void()> call)
    : state_(std::make_shared<State>(std::move(terms), std::move(call))) {}

BoundedCall::~BoundedCall() {
  bool started = false;
  {
    const MutexLock lock(state_->mutex);
    started = state_->started;
  }
  if (started) (void)state_->AwaitEnd();
}

void BoundedCall::Start() {
  const MutexLock lock(state_->mutex);
  if (std::exchange(state_->started, true)) return;
  // Not joined: the call may hang, and the watcher ends with the call or at the limit.
  std::thread([state = state_] { state->Watch(); }).detach();
  std::thread([state = state_] { state->Run(); }).detach();
}

Result<void> BoundedCall::Wait() {
  Start();
  return state_->AwaitEnd();
}

}  // namespace lockstep::comm
