#include "runtime/comm/shared_counter.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace lockstep::comm {

struct SharedCounter::State {
  State(std::shared_ptr<RoundStore> its_store, std::string its_key)
      : store(std::move(its_store)), key(std::move(its_key)) {}

  void Work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_over || asked.has_value(); });
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
  std::mutex mutex;
  std::condition_variable_any changed;
  // GUARDED_BY(mutex)
  std::optional<int64_t> asked;
  std::optional<Result<int64_t>> answer;
  bool is_in_call = false;
  bool is_over = false;
};

SharedCounter::SharedCounter(std::shared_ptr<RoundStore> store, std::string key)
    : state_(std::make_shared<State>(std::move(store), std::move(key))),
      thread_([state = state_] { state->Work(); }) {}

SharedCounter::~SharedCounter() {
  bool is_in_call = false;
  {
    const std::lock_guard lock(state_->mutex);
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
  std::unique_lock lock(state_->mutex);
  if (state_->is_in_call || state_->asked.has_value())
    return Error{ErrorCode::kAborted, "the round's store has not answered before"};
  state_->answer.reset();
  state_->asked = amount;
  state_->changed.notify_all();
  const bool answered = state_->changed.wait_for(lock, stop, Deadlines{}.collective,
                                                 [this] { return state_->answer.has_value(); });
  if (answered) return *state_->answer;
  if (stop.stop_requested())
    return Error{ErrorCode::kCancelled, "not waiting for the round's store any more"};
  return Error{ErrorCode::kAborted, "the round's store does not answer"};
}

}  // namespace lockstep::comm
