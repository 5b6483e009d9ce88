#pragma once
// A coordination.k8s.io Lease as values, and its timings. Pure.

#include <chrono>
#include <string>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct LeaseTimings {
  // other replicas wait this long after the last observed renewal
  std::chrono::milliseconds duration{15'000};
  std::chrono::milliseconds renew_deadline{10'000};  // a holder gives up after this long without a renewal
  std::chrono::milliseconds retry_period{2'000};     // how often a holder renews
  // How often a replica reads the Lease. More often than it renews, because a read is cheap and makes a
  // hand-over fast.
  std::chrono::milliseconds look_period{500};
};

// Requires duration > renew_deadline > 1.2 × retry_period; otherwise two replicas may hold the lease at the
// same time.
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
