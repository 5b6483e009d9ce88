#include "operator/telemetry/recovery_series.h"

namespace lockstep::telemetry {
namespace {

constexpr auto kLevels = WordsOf(rendezvous::RecoveryLevel{});
const prometheus::Histogram::BucketBoundaries kRecoveryBuckets = {0.05, 0.1, 0.25, 0.5, 1,   2.5,
                                                                  5,    10,  30,   60,  300, 1800};

}  // namespace

RecoverySeries::RecoverySeries(prometheus::Registry& registry)
    : of_jobs_(prometheus::BuildCounter()
                   .Name("lockstep_job_recoveries_total")
                   .Help("Failures of the job that were repaired, by recovery level.")
                   .Register(registry)) {
  auto& seconds = prometheus::BuildHistogram()
                      .Name("lockstep_recovery_seconds")
                      .Help("Seconds from the end of a round by a failure to the next step.")
                      .Register(registry);
  auto& lost_steps = prometheus::BuildCounter()
                         .Name("lockstep_lost_steps_total")
                         .Help("Completed steps that had to be repeated after a failure.")
                         .Register(registry);
  auto& recoveries = prometheus::BuildCounter()
                         .Name("lockstep_recoveries_total")
                         .Help("Repaired failures by cause and recovery level.")
                         .Register(registry);
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    prometheus::Labels labels = {{"level", std::string(kLevels.at(i))}};
    Series& series = levels_.at(i);
    series = {&seconds.Add(labels, kRecoveryBuckets), &lost_steps.Add(labels)};
    for (const std::string_view cause : WordsOf(api::FailureCause{})) {
      labels["cause"] = cause;
      series.recoveries.push_back(&recoveries.Add(labels));
    }
  }
}

RecoverySeries::Job& RecoverySeries::JobOf(const api::TrainingJob& job) {
  const auto [found, is_new] = jobs_.try_emplace(job.metadata.uid);
  if (is_new) {
    for (std::size_t i = 0; i < kLevels.size(); ++i) {
      found->second.recoveries.at(i) = &of_jobs_.Add({{"namespace", job.metadata.namespace_name},
                                                      {"job_name", job.metadata.name},
                                                      {"level", std::string(kLevels.at(i))}});
    }
  }
  return found->second;
}

void RecoverySeries::Count(const api::TrainingJob& job, const std::vector<rendezvous::RoundChange>& changes) {
  Job& known = JobOf(job);
  if (changes.empty()) return;
  known.counted.erase(known.counted.begin(), known.counted.lower_bound(changes.front().round));
  for (const rendezvous::RoundChange& change : changes) {
    const bool is_over = change.is_repaired && change.recovery_seconds > 0;
    if (!change.cause || !is_over || !known.counted.insert(change.round).second) continue;
    const auto level = static_cast<std::size_t>(change.level);
    Series& series = levels_.at(level);
    series.seconds->Observe(change.recovery_seconds);
    series.lost_steps->Increment(static_cast<double>(change.lost_steps));
    series.recoveries.at(static_cast<std::size_t>(*change.cause))->Increment();
    known.recoveries.at(level)->Increment();
  }
}

void RecoverySeries::Forget(const std::string& uid) {
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return;
  for (prometheus::Counter* counter : found->second.recoveries) of_jobs_.Remove(counter);
  jobs_.erase(found);
}

}  // namespace lockstep::telemetry
