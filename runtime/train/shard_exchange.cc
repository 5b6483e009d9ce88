#include "runtime/train/shard_exchange.h"

#include <algorithm>
#include <thread>

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 20ms;
constexpr auto kPatienceAfterTheRound = 10s;

}  // namespace

Result<void> RoundExchange::Publish(const std::string& key, const std::string& value) {
  return store_->Set(key, value);
}

Result<std::string> RoundExchange::Wait(const std::string& key, std::chrono::milliseconds limit) {
  SteadyTime deadline = clock_.Steady() + limit;
  bool shortened = false;
  while (true) {
    LOCKSTEP_TRY(const std::optional<std::string> value, store_->Get(key));
    if (value.has_value()) return *value;
    if (!shortened && RoundIsOver()) {
      shortened = true;
      deadline = std::min<SteadyTime>(deadline, clock_.Steady() + kPatienceAfterTheRound);
    }
    if (clock_.Steady() >= deadline) {
      return shortened ? Error{ErrorCode::kAborted, "the round ended before all shards were stored"}
                       : Error{ErrorCode::kDeadlineExceeded, "another rank's shard was not stored in time"};
    }
    std::this_thread::sleep_for(kPoll);  // the store has no wait that an end of the round could interrupt
  }
}

bool RoundExchange::RoundIsOver() const {
  const auto communicator = communicator_.lock();
  return communicator == nullptr || communicator->aborted();
}

Result<void> NoExchange::Publish(const std::string&, const std::string&) { return {}; }

Result<std::string> NoExchange::Wait(const std::string& key, std::chrono::milliseconds) {
  return Error{ErrorCode::kInternal, "nobody else writes this checkpoint: " + key};
}

}  // namespace lockstep::train
