#pragma once
// May I lead? The decision about a coordination.k8s.io Lease without the network. Pure.
//
// A holder is judged by what this process observed to change, on its own steady clock, never by another
// host's timestamps. This elects; it does not fence: a paused leader may still write, which is why it must
// exit on loss.

#include <chrono>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct LeaseTimings {
  std::chrono::milliseconds duration{15'000};  // others wait this long after the last observed renewal
  std::chrono::milliseconds renew_deadline{
      10'000};  // the leader gives up when it could not renew for so long
  std::chrono::milliseconds retry_period{2'000};
  // Who waits looks more often than who leads renews: a look is one read, and makes a hand-over quick.
  std::chrono::milliseconds look_period{500};
};

// duration > renew_deadline > 1.2 × retry_period, or two may lead at once.
[[nodiscard]] Result<void> ValidateTimings(const LeaseTimings& timings);

struct LeaseRecord {
  std::string holder;  // empty: released
  std::string renew_time;
  int64_t duration_seconds = 15;
  int64_t transitions = 0;
  std::string acquire_time;

  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

[[nodiscard]] LeaseRecord LeaseRecordFromJson(const Json& lease);
[[nodiscard]] Json LeaseSpecToJson(const LeaseRecord& record);

enum class LeaseMove { kTake, kRenew, kWait };

struct LeaseDecision {
  LeaseMove move = LeaseMove::kWait;
  LeaseRecord next;  // to be written for kTake and kRenew
};

// What one candidate remembers of the record between looks.
class LeaseObserver {
 public:
  LeaseObserver(std::string identity, LeaseTimings timings)
      : identity_(std::move(identity)), timings_(timings) {}

  [[nodiscard]] LeaseDecision Decide(const LeaseRecord& record, SteadyTime now, WallTime wall);

 private:
  const std::string identity_;
  const LeaseTimings timings_;
  LeaseRecord observed_;
  SteadyTime observed_at_{};
  bool has_observed_ = false;
};

}  // namespace lockstep::kube
