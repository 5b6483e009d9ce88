#pragma once
// How a rank bears a checkpoint store that does not answer: it asks again, with back-off, for as long as
// spec.failurePolicy.storePatienceSeconds allows, and tells who waits for what. Step thread.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::train {

class StorePatience {
 public:
  struct Context {
    Seconds patience;
    const Clock& clock;
    std::function<void(const protocol::StoreAway&)> tell;
    // False where the round is over or the rank is to stop.
    std::function<bool(Milliseconds)> pause;
  };
  explicit StorePatience(Context context) : context_(std::move(context)) {}

  // The store did what it was asked.
  void Answered();
  // It did not, and training goes on without.
  void Missed(const Error& error, std::string_view waiting);
  // It did not, and `waiting` cannot go on without: returns when to ask again. Every rank of a round that
  // met the same outage pauses as long. kCancelled where the pause was cut short; `error` where the patience
  // is at its end.
  [[nodiscard]] Result<void> Await(const Error& error, std::string_view waiting);

 private:
  const Context context_;
  std::optional<SteadyTime> since_;  // of the outage
  std::string told_;                 // what was told to wait
  Milliseconds next_pause_{0};
};

}  // namespace lockstep::train
