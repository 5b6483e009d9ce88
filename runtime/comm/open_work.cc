#include "runtime/comm/open_work.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <condition_variable>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/common/base/mutex.h"

namespace lockstep::comm {
namespace {

using c10::ivalue::Future;

constexpr const char* kGivenUp = "the round was aborted";

}  // namespace

struct OpenWork::State {
  Mutex mutex;
  std::condition_variable_any changed;
  bool has_ended LOCKSTEP_GUARDED_BY(mutex) = false;
  bool gave_up LOCKSTEP_GUARDED_BY(mutex) = false;
  std::vector<c10::intrusive_ptr<Future>> collectives LOCKSTEP_GUARDED_BY(mutex);
  std::vector<c10::intrusive_ptr<c10d::Work>> messages LOCKSTEP_GUARDED_BY(mutex);

  // Returns true for one caller only, which then completes the future.
  bool Take(const c10::intrusive_ptr<Future>& future) {
    const MutexLock lock(mutex);
    const bool was_open = std::erase(collectives, future) > 0;
    if (collectives.empty()) changed.notify_all();
    return was_open;
  }
};

OpenWork::OpenWork() : state_(std::make_shared<State>()) {}
OpenWork::~OpenWork() = default;

c10::intrusive_ptr<Future> OpenWork::FutureOf(c10d::Work& collective) {
  const auto theirs = collective.getFuture();
  auto ours = c10::make_intrusive<Future>(theirs->elementType());
  {
    const MutexLock lock(state_->mutex);
    if (!state_->has_ended) {
      state_->collectives.push_back(ours);
    } else {
      ours->setError(std::make_exception_ptr(std::runtime_error(kGivenUp)));
    }
  }
  theirs->addCallback([state = state_, ours](Future& done) {
    if (!state->Take(ours)) return;
    done.hasError() ? ours->setError(done.exception_ptr()) : ours->markCompleted(done.value());
  });
  return ours;
}

Result<void> OpenWork::Await(const c10::intrusive_ptr<c10d::Work>& message, std::chrono::milliseconds limit) {
  struct Registration {
    State& state;
    const c10::intrusive_ptr<c10d::Work>& message;
    ~Registration() {
      const MutexLock lock(state.mutex);
      std::erase(state.messages, message);
    }
  };
  {
    const MutexLock lock(state_->mutex);
    if (state_->has_ended) message->abort();
    state_->messages.push_back(message);
  }
  const Registration registration{*state_, message};
  // False: `abort` ended the wait.
  if (!message->wait(limit)) return Error{ErrorCode::kAborted, kGivenUp};
  return {};
}

void OpenWork::End(std::chrono::milliseconds limit) {
  std::vector<c10::intrusive_ptr<Future>> given_up;
  {
    MutexLock lock(state_->mutex);
    state_->has_ended = true;
    for (const auto& message : state_->messages) message->abort();
    state_->changed.wait_for(
        lock, limit, [this]() LOCKSTEP_REQUIRES(state_->mutex) { return state_->collectives.empty(); });
    given_up = std::exchange(state_->collectives, {});
    state_->gave_up = state_->gave_up || !given_up.empty();
  }
  for (const auto& future : given_up) future->setError(std::make_exception_ptr(std::runtime_error(kGivenUp)));
}

bool OpenWork::gave_up() const {
  const MutexLock lock(state_->mutex);
  return state_->gave_up;
}

}  // namespace lockstep::comm
