#include "operator/kube/lease.h"

#include "runtime/common/base/time_text.h"

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

LeaseDecision LeaseObserver::Decide(const LeaseRecord& record, SteadyTime now, WallTime wall) {
  if (!has_observed_ || record != observed_) {
    observed_ = record;
    observed_at_ = now;
    has_observed_ = true;
  }
  LeaseRecord next{
      .holder = identity_,
      .renew_time = FormatMicroTime(wall),
      .duration_seconds = std::chrono::duration_cast<std::chrono::seconds>(timings_.duration).count(),
      .transitions = record.transitions,
      .acquire_time = record.acquire_time};
  if (record.holder == identity_) return {LeaseMove::kRenew, next};
  const bool is_free =
      record.holder.empty() || now - observed_at_ > std::chrono::seconds(record.duration_seconds);
  if (!is_free) return {LeaseMove::kWait, record};
  next.acquire_time = next.renew_time;
  if (!record.renew_time.empty()) ++next.transitions;
  return {LeaseMove::kTake, next};
}

}  // namespace lockstep::kube
