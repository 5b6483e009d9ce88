#include "operator/telemetry/job_series.h"

#include "runtime/common/api/conditions.h"

namespace lockstep::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

prometheus::Family<Gauge>& GaugeFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Family<Counter>& NewCounterFamily(prometheus::Registry& registry, const char* name,
                                              const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

// A total of the status may shrink: productive seconds turn out to be lost. The counter then waits until the
// total has passed it again, because rate() takes a decrease for a restart and counts the whole total again.
void RaiseTo(double total, Counter& counter) { counter.Increment(total - counter.Value()); }

prometheus::Labels LabelsOf(const api::TrainingJob& job) {
  return {{"namespace", job.metadata.namespace_name}, {"job_name", job.metadata.name}};
}

prometheus::Labels WithLabel(prometheus::Labels labels, const char* name, const std::string& value) {
  labels[name] = value;
  return labels;
}

// The values of api::StateOf, so that each exists as 0 before the first job has it.
constexpr const char* kStates[] = {"Created", "Pending",   "Starting", "Running", "Restarting",
                                   "Stalled", "Suspended", "Complete", "Failed"};

// Reasons of the condition Failed.
constexpr std::string_view kFailures[] = {api::reason::kInvalidSpec,
                                          api::reason::kUserError,
                                          api::reason::kBadConfiguration,
                                          api::reason::kObjectStore,
                                          api::reason::kMaxRestarts,
                                          api::reason::kDeadlineExceeded,
                                          api::reason::kStartupDeadlineExceeded,
                                          api::reason::kFailurePolicy};

// The fields of api::LostSeconds, in their order.
constexpr const char* kLosses[] = {"scheduling", "startup",   "rendezvous",
                                   "checkpoint", "recompute", "stalled"};

}  // namespace

JobSeries::JobSeries(prometheus::Registry& registry)
    : jobs_(GaugeFamily(registry, "lockstep_jobs", "Training jobs by state.")),
      failed_jobs_(NewCounterFamily(registry, "lockstep_failed_jobs_total",
                                    "Jobs that have failed, by the reason of their condition.")),
      info_(GaugeFamily(registry, "lockstep_job_info", "1 for each job, to join its labels on.")),
      job_state_(GaugeFamily(registry, "lockstep_job_state", "1 for the state that the job is in.")),
      world_size_(
          GaugeFamily(registry, "lockstep_job_world_size", "Ranks in the current round; 0 between rounds.")),
      replicas_(GaugeFamily(registry, "lockstep_job_replicas", "Worker pods that have not ended.")),
      ready_replicas_(GaugeFamily(registry, "lockstep_job_ready_replicas", "Worker pods that are ready.")),
      members_(
          GaugeFamily(registry, "lockstep_job_members",
                      "Pods at the rendezvous by state: round, those of the current round, or waiting.")),
      gpus_(GaugeFamily(registry, "lockstep_job_gpus",
                        "GPUs by state: held by pods that have a node, waiting for such a pod.")),
      round_(GaugeFamily(registry, "lockstep_job_round", "Number of the newest round.")),
      step_(GaugeFamily(registry, "lockstep_job_step", "Newest finished step, at most ten seconds old.")),
      checkpoint_step_(GaugeFamily(registry, "lockstep_job_checkpoint_step",
                                   "Step of the newest stored checkpoint; 0 before the first.")),
      restarts_(NewCounterFamily(registry, "lockstep_job_restarts_total",
                                 "Restarts charged to the job's failurePolicy.maxRestarts.")),
      straggler_(GaugeFamily(registry, "lockstep_job_straggler",
                             "1 if a rank is slower than the others, by healthPolicy.straggler.")),
      goodput_(GaugeFamily(registry, "lockstep_job_goodput_ratio",
                           "Productive seconds divided by all seconds since the job was first admitted.")),
      productive_seconds_(NewCounterFamily(registry, "lockstep_job_productive_seconds_total",
                                           "Seconds spent on steps that were kept.")),
      lost_seconds_(
          NewCounterFamily(registry, "lockstep_job_lost_seconds_total", "The other seconds, by reason.")) {
  for (const char* state : kStates) jobs_.Add({{"state", state}});
  for (const std::string_view reason : kFailures) failed_jobs_.Add({{"reason", std::string(reason)}});
}

JobSeries::Series JobSeries::Add(const api::TrainingJob& job) {
  const prometheus::Labels labels = LabelsOf(job);
  // A program of the user's own may report neither.
  const bool reports_steps = job.spec.training.has_value();
  const bool stores = reports_steps && job.spec.checkpoint.has_value();
  prometheus::Labels info = labels;
  info["model"] = job.spec.training ? std::string(api::NameOf(job.spec.training->model.name)) : "";
  std::vector<Counter*> lost;
  for (const char* reason : kLosses) lost.push_back(&lost_seconds_.Add(WithLabel(labels, "reason", reason)));
  return {.info = &info_.Add(info),
          .world_size = &world_size_.Add(labels),
          .replicas = &replicas_.Add(labels),
          .ready_replicas = &ready_replicas_.Add(labels),
          .members_in_round = &members_.Add(WithLabel(labels, "state", "round")),
          .members_waiting = &members_.Add(WithLabel(labels, "state", "waiting")),
          .held_gpus = &gpus_.Add(WithLabel(labels, "state", "held")),
          .waiting_gpus = &gpus_.Add(WithLabel(labels, "state", "waiting")),
          .round = &round_.Add(labels),
          .step = reports_steps ? &step_.Add(labels) : nullptr,
          .checkpoint_step = stores ? &checkpoint_step_.Add(labels) : nullptr,
          .restarts = &restarts_.Add(labels),
          .straggler = &straggler_.Add(labels),
          .goodput = &goodput_.Add(labels),
          .productive_seconds = &productive_seconds_.Add(labels),
          .lost_seconds = std::move(lost)};
}

void JobSeries::CountFailure(const api::TrainingJobStatus& before, const api::TrainingJobStatus& now) {
  const api::Condition* failed = api::FindCondition(now.conditions, api::condition::kFailed);
  if (!api::IsTrue(now.conditions, api::condition::kFailed) || api::IsFinished(before.conditions)) return;
  failed_jobs_.Add({{"reason", failed->reason}}).Increment();
}

void JobSeries::SetState(const api::TrainingJob& job, const std::string& state, Series& series) {
  if (series.state == state) return;
  if (!series.state.empty()) jobs_.Add({{"state", series.state}}).Decrement();
  if (series.in_state != nullptr) job_state_.Remove(series.in_state);
  jobs_.Add({{"state", state}}).Increment();
  series.in_state = &job_state_.Add(WithLabel(LabelsOf(job), "state", state));
  series.in_state->Set(1);
  series.state = state;
}

void JobSeries::Set(const api::TrainingJob& job, const api::TrainingJobStatus& status,
                    const reconcile::GpuCount& gpus, const rendezvous::RendezvousView& rendezvous) {
  const auto [found, is_new] = series_.try_emplace(job.metadata.uid);
  Series& series = found->second;
  if (is_new) series = Add(job);
  CountFailure(job.status, status);
  SetState(job, status.state, series);
  series.info->Set(1);
  series.world_size->Set(status.rendezvous ? status.rendezvous->world_size : 0);
  series.replicas->Set(status.replicas);
  series.ready_replicas->Set(status.ready_replicas);
  series.members_in_round->Set(static_cast<double>(rendezvous.members.size()));
  series.members_waiting->Set(rendezvous.waiting);
  series.held_gpus->Set(gpus.held);
  series.waiting_gpus->Set(gpus.waiting);
  series.round->Set(status.rendezvous ? static_cast<double>(status.rendezvous->round) : 0);
  // Of a program: once a witness has reported a step.
  if (series.step == nullptr && status.progress) series.step = &step_.Add(LabelsOf(job));
  if (series.step != nullptr)
    series.step->Set(status.progress ? static_cast<double>(status.progress->step) : 0);
  // Of a program: once a checkpoint whose step is known was found.
  const auto checkpoint_step = status.checkpoint ? status.checkpoint->step : std::nullopt;
  if (series.checkpoint_step == nullptr && checkpoint_step)
    series.checkpoint_step = &checkpoint_step_.Add(LabelsOf(job));
  if (series.checkpoint_step != nullptr)
    series.checkpoint_step->Set(static_cast<double>(checkpoint_step.value_or(0)));
  const api::Condition* degraded = api::FindCondition(status.conditions, api::condition::kDegraded);
  const bool has_straggler = degraded != nullptr && degraded->status == api::ConditionStatus::kTrue &&
                             degraded->reason == api::reason::kStraggler;
  series.straggler->Set(has_straggler ? 1 : 0);
  RaiseTo(status.attempt, *series.restarts);
  const api::GoodputStatus goodput = status.goodput.value_or(api::GoodputStatus{});
  const api::LostSeconds& lost = goodput.lost_seconds;
  series.goodput->Set(goodput.ratio);
  RaiseTo(goodput.productive_seconds, *series.productive_seconds);
  const double seconds[] = {lost.scheduling, lost.startup,   lost.rendezvous,
                            lost.checkpoint, lost.recompute, lost.stalled};
  for (std::size_t i = 0; i < series.lost_seconds.size(); ++i) RaiseTo(seconds[i], *series.lost_seconds[i]);
}

void JobSeries::Remove(const std::string& uid) {
  const auto found = series_.find(uid);
  if (found == series_.end()) return;
  const Series& series = found->second;
  if (!series.state.empty()) jobs_.Add({{"state", series.state}}).Decrement();
  info_.Remove(series.info);
  if (series.in_state != nullptr) job_state_.Remove(series.in_state);
  world_size_.Remove(series.world_size);
  replicas_.Remove(series.replicas);
  ready_replicas_.Remove(series.ready_replicas);
  members_.Remove(series.members_in_round);
  members_.Remove(series.members_waiting);
  gpus_.Remove(series.held_gpus);
  gpus_.Remove(series.waiting_gpus);
  round_.Remove(series.round);
  if (series.step != nullptr) step_.Remove(series.step);
  if (series.checkpoint_step != nullptr) checkpoint_step_.Remove(series.checkpoint_step);
  restarts_.Remove(series.restarts);
  straggler_.Remove(series.straggler);
  goodput_.Remove(series.goodput);
  productive_seconds_.Remove(series.productive_seconds);
  for (Counter* counter : series.lost_seconds) lost_seconds_.Remove(counter);
  series_.erase(found);
}

}  // namespace lockstep::telemetry
