#include "runtime/train/shard_exchange.h"

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
  const SteadyTime deadline = clock_.Steady() + limit;
  while (true) {
    LOCKSTEP_TRY(const std::optional<std::string> value, store_->Get(key));
    if (value.has_value()) return *value;
    if (IsGivenUp()) return Error{ErrorCode::kAborted, "the round ended before all shards were stored"};
    if (clock_.Steady() >= deadline) {
      return Error{ErrorCode::kDeadlineExceeded, "another rank's shard was not stored in time"};
    }
    std::this_thread::sleep_for(kPoll);  // the store has no wait that an end of the round could interrupt
  }
}

bool RoundExchange::IsGivenUp() {
  const auto communicator = communicator_.lock();
  if (communicator != nullptr && !communicator->aborted()) return false;
  if (!over_since_) over_since_ = clock_.Steady();
  return clock_.Steady() - *over_since_ > kPatienceAfterTheRound;
}

}  // namespace lockstep::train
