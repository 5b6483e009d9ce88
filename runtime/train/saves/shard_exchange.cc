#include "runtime/train/saves/shard_exchange.h"

#include <optional>
#include <thread>

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 20ms;

}  // namespace

Result<void> RoundExchange::Publish(const std::string& key, const std::string& value) {
  return store_->Set(key, value);
}

Result<std::string> RoundExchange::Wait(const std::string& key, std::chrono::milliseconds limit) {
  const SteadyTime deadline = clock_.Steady() + limit;
  while (true) {
    LOCKSTEP_TRY(const std::optional<std::string> value, store_->Get(key));
    if (value.has_value()) return *value;
    if (clock_.Steady() >= deadline) {
      return Error{ErrorCode::kDeadlineExceeded, "another rank's shard was not stored in time"};
    }
    std::this_thread::sleep_for(kPoll);  // the store has no wait that the end of the round could interrupt
  }
}

bool RoundExchange::IsOver() {
  const auto communicator = communicator_.lock();
  return communicator == nullptr || communicator->aborted();
}

}  // namespace lockstep::train
