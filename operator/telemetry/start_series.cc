#include "operator/telemetry/start_series.h"

#include "runtime/common/api/conditions.h"
#include "runtime/common/base/clock.h"

namespace lockstep::telemetry {
namespace {

const prometheus::Histogram::BucketBoundaries kStartBuckets = {1,   2,   5,   10,   30,    60,
                                                               120, 300, 900, 3600, 14400, 86400};

prometheus::Histogram& StartHistogram(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kStartBuckets);
}

// The condition, if this pass has made it true.
const api::Condition* MadeTrue(std::string_view type, const api::TrainingJobStatus& before,
                               const api::TrainingJobStatus& now) {
  const bool is_new = api::IsTrue(now.conditions, type) && !api::IsTrue(before.conditions, type);
  return is_new ? api::FindCondition(now.conditions, type) : nullptr;
}

}  // namespace

StartSeries::StartSeries(prometheus::Registry& registry)
    : queue_seconds_(StartHistogram(registry, "lockstep_queue_seconds",
                                    "Seconds that jobs with a queue waited for their first admission.")),
      start_seconds_(
          StartHistogram(registry, "lockstep_start_seconds",
                         "Seconds from a job's admission, or the end of a suspension, to a round.")) {}

void StartSeries::Count(const api::TrainingJobStatus& before, const api::TrainingJobStatus& now) {
  const api::Condition* queued = api::FindCondition(before.conditions, api::condition::kQuotaReserved);
  const api::Condition* admitted = MadeTrue(api::condition::kQuotaReserved, before, now);
  const bool is_first = !before.goodput;  // from its first admission on there is one
  if (queued != nullptr && admitted != nullptr && is_first)
    queue_seconds_.Observe(Seconds(admitted->last_transition_time - queued->last_transition_time).count());
  const api::Condition* started = MadeTrue(api::condition::kInitialized, before, now);
  if (started != nullptr && now.start_time)
    start_seconds_.Observe(Seconds(started->last_transition_time - *now.start_time).count());
}

}  // namespace lockstep::telemetry
