#include "runtime/comm/bounded_call.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/comm/torch_error.h"

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
      std::unique_lock lock(mutex);
      if (ended.wait_for(lock, terms.limit, [this] { return outcome.has_value(); })) return;
    }
    const std::string problem = terms.what + ": no end within " + std::to_string(terms.limit.count()) + " ms";
    if (terms.give_up) terms.give_up(problem);
    End(Error{ErrorCode::kDeadlineExceeded, problem});
  }

  void End(Result<void> how) {
    const std::lock_guard lock(mutex);
    if (!outcome.has_value()) outcome = std::move(how);
    ended.notify_all();
  }

  Result<void> AwaitEnd() {
    std::unique_lock lock(mutex);
    ended.wait(lock, [this] { return outcome.has_value(); });
    return *outcome;
  }

  const Terms terms;
  const std::function<void()> call;
  std::mutex mutex;
  std::condition_variable ended;
  bool started = false;
  std::optional<Result<void>> outcome;
};

BoundedCall::BoundedCall(Terms terms, std::function<void()> call)
    : state_(std::make_shared<State>(std::move(terms), std::move(call))) {}

BoundedCall::~BoundedCall() {
  bool started = false;
  {
    const std::lock_guard lock(state_->mutex);
    started = state_->started;
  }
  if (started) (void)state_->AwaitEnd();
}

void BoundedCall::Start() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->started, true)) return;
  // Not joined: the one may hang, the other ends with it or at the limit.
  std::thread([state = state_] { state->Watch(); }).detach();
  std::thread([state = state_] { state->Run(); }).detach();
}

Result<void> BoundedCall::Wait() {
  Start();
  return state_->AwaitEnd();
}

}  // namespace lockstep::comm
