#include "operator/telemetry/recovery_series.h"

namespace lockstep::telemetry {
namespace {

// In the order of rendezvous::Rung.
constexpr std::array<const char*, 4> kRungs = {"Membership", "Respawn", "ReplacePod", "Checkpoint"};
const prometheus::Histogram::BucketBoundaries kRecoveryBuckets = {0.05, 0.1, 0.25, 0.5, 1,   2.5,
                                                                  5,    10,  30,   60,  300, 1800};

// A worker told it: what it says must not become a series.
api::FailureCause CauseFrom(std::string_view name) {
  return api::EnumFromName<api::FailureCause>(name).value_or(api::FailureCause::kInfrastructure);
}

}  // namespace

RecoverySeries::RecoverySeries(prometheus::Registry& registry)
    : of_jobs_(prometheus::BuildCounter()
                   .Name("lockstep_job_recoveries_total")
                   .Help("Failures of the job that were repaired, by what it took.")
                   .Register(registry)) {
  auto& seconds = prometheus::BuildHistogram()
                      .Name("lockstep_recovery_seconds")
                      .Help("Seconds from the end of a round by a failure to the next step.")
                      .Register(registry);
  auto& lost_steps = prometheus::BuildCounter()
                         .Name("lockstep_lost_steps_total")
                         .Help("Finished steps that had to be made again after a failure.")
                         .Register(registry);
  auto& recoveries = prometheus::BuildCounter()
                         .Name("lockstep_recoveries_total")
                         .Help("Failures that were mended, by their cause and by what it took.")
                         .Register(registry);
  for (std::size_t i = 0; i < kRungs.size(); ++i) {
    prometheus::Labels labels = {{"rung", kRungs.at(i)}};
    Series& series = rungs_.at(i);
    series = {&seconds.Add(labels, kRecoveryBuckets), &lost_steps.Add(labels)};
    for (const std::string_view cause : api::EnumNames<api::FailureCause>::values) {
      labels["cause"] = cause;
      series.recoveries[CauseFrom(cause)] = &recoveries.Add(labels);
    }
  }
}

RecoverySeries::Job& RecoverySeries::JobOf(const api::TrainingJob& job) {
  const auto [found, is_new] = jobs_.try_emplace(job.metadata.uid);
  if (is_new) {
    for (std::size_t i = 0; i < kRungs.size(); ++i) {
      found->second.recoveries.at(i) = &of_jobs_.Add({{"namespace", job.metadata.namespace_name},
                                                      {"job_name", job.metadata.name},
                                                      {"rung", kRungs.at(i)}});
    }
  }
  return found->second;
}

void RecoverySeries::Count(const api::TrainingJob& job, const std::vector<rendezvous::RoundChange>& changes) {
  Job& known = JobOf(job);
  if (changes.empty()) return;
  known.counted.erase(known.counted.begin(), known.counted.lower_bound(changes.front().round));
  for (const rendezvous::RoundChange& change : changes) {
    const bool is_over = change.is_mended && change.recovery_seconds > 0;
    if (change.cause == "Scale" || !is_over || !known.counted.insert(change.round).second) continue;
    const auto rung = static_cast<std::size_t>(change.rung);
    Series& series = rungs_.at(rung);
    series.seconds->Observe(change.recovery_seconds);
    series.lost_steps->Increment(static_cast<double>(change.lost_steps));
    series.recoveries.at(CauseFrom(change.cause))->Increment();
    known.recoveries.at(rung)->Increment();
  }
}

void RecoverySeries::Forget(const std::string& uid) {
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return;
  for (prometheus::Counter* counter : found->second.recoveries) of_jobs_.Remove(counter);
  jobs_.erase(found);
}

}  // namespace lockstep::telemetry
