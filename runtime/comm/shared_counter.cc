#include "runtime/comm/shared_counter.h"

#include <chrono>
#include <condition_variable>
#include <optional>
#include <utility>

#include "runtime/common/base/mutex.h"

namespace lockstep::comm {
namespace {

// Rank 0 serves the store on a separate thread, so an answer does not wait for rank 0's other work.
constexpr std::chrono::seconds kLongestSilence{60};

}  // namespace

struct SharedCounter::State {
  State(std::shared_ptr<RoundStore> its_store, std::string its_key)
      : store(std::move(its_store)), key(std::move(its_key)) {}

  void Work() {
    MutexLock lock(mutex);
    while (true) {
      changed.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex) { return is_over || asked.has_value(); });
      if (is_over) return;
      const int64_t amount = *std::exchange(asked, std::nullopt);
      is_in_call = true;
      lock.unlock();
      Result<int64_t> sum = store->Add(key, amount);
      lock.lock();
      is_in_call = false;
      if (sum.ok()) *sum -= amount;
      answer = std::move(sum);
      changed.notify_all();
    }
  }

  const std::shared_ptr<RoundStore> store;
  const std::string key;
  Mutex mutex;
  std::condition_variable_any changed;
  std::optional<int64_t> asked LOCKSTEP_GUARDED_BY(mutex);
  std::optional<Result<int64_t>> answer LOCKSTEP_GUARDED_BY(mutex);
  bool is_in_call LOCKSTEP_GUARDED_BY(mutex) = false;
  bool is_over LOCKSTEP_GUARDED_BY(mutex) = false;
};

SharedCounter::SharedCounter(std::shared_ptr<RoundStore> store, std::string key)
    : state_(std::make_shared<State>(std::move(store), std::move(key))),
      thread_([state = state_] { state->Work(); }) {}

SharedCounter::~SharedCounter() {
  bool is_in_call = false;
  {
    const MutexLock lock(state_->mutex);
    state_->is_over = true;
    is_in_call = state_->is_in_call;
    state_->changed.notify_all();
  }
  if (is_in_call) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Result<int64_t> SharedCounter::Add(int64_t amount, const std::stop_token& stop) {
  MutexLock lock(state_->mutex);
  if (state_->is_in_call || state_->asked.has_value())
    return Error{ErrorCode::kAborted, "the round's store has not answered before"};
  state_->answer.reset();
  state_->asked = amount;
  state_->changed.notify_all();
  const bool answered = state_->changed.wait_for(
      lock, stop, kLongestSilence,
      [this]() LOCKSTEP_REQUIRES(state_->mutex) { return state_->answer.has_value(); });
  if (answered) return *state_->answer;
  if (stop.stop_requested())
    return Error{ErrorCode::kCancelled, "not waiting for the round's store any more"};
  return Error{ErrorCode::kAborted, "the round's store does not answer"};
}

}  // namespace lockstep::comm
