#include "operator/kube/lease.h"

namespace lockstep::kube {

Result<void> ValidateTimings(const LeaseTimings& timings) {
  const bool ordered = timings.duration > timings.renew_deadline &&
                       timings.renew_deadline * 10 > timings.retry_period * 12 &&
                       timings.retry_period.count() > 0;
  if (ordered) return {};
  return Error{ErrorCode::kInvalidArgument,
               "lease timings must satisfy duration > renew deadline > 1.2 × retry period > 0"};
}

LeaseRecord LeaseRecordFromJson(const Json& lease) {
  return {.holder = StringAt(lease, {"spec", "holderIdentity"}),
          .renew_time = StringAt(lease, {"spec", "renewTime"}),
          .duration_seconds = IntAt(lease, {"spec", "leaseDurationSeconds"}, 15),
          .transitions = IntAt(lease, {"spec", "leaseTransitions"}),
          .acquire_time = StringAt(lease, {"spec", "acquireTime"})};
}

Json LeaseSpecToJson(const LeaseRecord& record) {
  Json spec = {{"holderIdentity", record.holder},
               {"leaseDurationSeconds", record.duration_seconds},
               {"leaseTransitions", record.transitions},
               {"renewTime", record.renew_time}};
  if (!record.acquire_time.empty()) spec["acquireTime"] = record.acquire_time;
  return spec;
}

}  // namespace lockstep::kube
