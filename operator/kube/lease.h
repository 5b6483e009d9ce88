#pragma once
// A coordination.k8s.io Lease as values, and how long it lasts. Pure.

#include <chrono>
#include <string>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct LeaseTimings {
  std::chrono::milliseconds duration{15'000};        // others wait this long after the last observed renewal
  std::chrono::milliseconds renew_deadline{10'000};  // a holder gives up when it could not renew for so long
  std::chrono::milliseconds retry_period{2'000};     // how often it renews
  // It looks more often: that is one read, and makes a hand-over quick.
  std::chrono::milliseconds look_period{500};
};

// duration > renew_deadline > 1.2 × retry_period, or two may hold it at once.
[[nodiscard]] Result<void> ValidateTimings(const LeaseTimings& timings);

struct LeaseRecord {
  std::string holder;  // empty: released
  std::string renew_time;
  int64_t duration_seconds = 15;
  int64_t transitions = 0;
  std::string acquire_time;
};

[[nodiscard]] LeaseRecord LeaseRecordFromJson(const Json& lease);
[[nodiscard]] Json LeaseSpecToJson(const LeaseRecord& record);

}  // namespace lockstep::kube
