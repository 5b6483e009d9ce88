#pragma once
// Waits for a checkpoint store that does not answer, with back-off and for at most
// spec.failurePolicy.storePatienceSeconds, and reports the outage to the supervisor. Step thread.

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
    std::function<void(const protocol::StoreUnavailable&)> report;
    // Returns false if the round ended, or the rank was asked to stop, before the time was over.
    std::function<bool(Milliseconds)> pause;
  };
  explicit StorePatience(Context context) : context_(std::move(context)) {}

  // A request succeeded, so an outage, if there is one, is over.
  void Answered();
  // A request failed, and training continues without it.
  void Missed(const Error& error, std::string_view waiting);
  // A request failed that `waiting` needs: returns when it should be sent again. The pauses depend on the
  // number of failures only, so all ranks of a round pause equally long. kCancelled: the pause was cut short.
  // `error`: the patience is exhausted.
  [[nodiscard]] Result<void> Await(const Error& error, std::string_view waiting);

 private:
  const Context context_;
  std::optional<SteadyTime> since_;  // of the outage
  std::string reported_;             // as waiting, newest
  Milliseconds next_pause_{0};
};

}  // namespace lockstep::train
