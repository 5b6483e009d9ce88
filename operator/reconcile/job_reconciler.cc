#include "operator/reconcile/job_reconciler.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/decision.h"
#include "operator/reconcile/notes.h"
#include "operator/reconcile/status.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/log.h"

namespace lockstep::reconcile {
namespace {

Json ReferenceTo(const api::TrainingJob& job) {
  return {{"apiVersion", api::kApiVersion},
          {"kind", api::kKind},
          {"namespace", job.metadata.namespace_name},
          {"name", job.metadata.name},
          {"uid", job.metadata.uid}};
}

void LogActions(const std::string& key, const Plan& plan) {
  std::map<std::string, int64_t> counts;  // for a job of a thousand pods one line, not a thousand
  for (const PlannedAction& entry : plan.actions) {
    ++counts[std::string(NameOf(entry.action)) + ": " + entry.reason];
  }
  for (const auto& [action, count] : counts) {
    log::Info("planned", {{"job", key}, {"action", action}, {"count", count}});
  }
}

// Caches do not show that a namespace is being deleted; the rejection of a create does.
bool NamespaceEnds(const Plan& plan, const Applied& applied) {
  const bool starts = std::any_of(plan.actions.begin(), plan.actions.end(), [](const PlannedAction& entry) {
    return std::holds_alternative<StartRemoval>(entry.action);
  });
  return starts && applied.error && applied.error->code == ErrorCode::kNotFound;
}

}  // namespace

JobReconciler::JobReconciler(Dependencies dependencies, std::function<ClusterSettings()> settings)
    : dependencies_(dependencies),
      settings_(std::move(settings)),
      applier_(dependencies.client, dependencies.caches),
      claims_(dependencies.client, dependencies.clock) {}

Result<controller::Outcome> JobReconciler::Reconcile(const std::string& key) {
  auto observed = Observe(kube::KeyFromString(key), dependencies_.caches, dependencies_.rendezvous,
                          settings_(), dependencies_.clock.Now());
  if (!observed) {
    Forget(key);
    return controller::Outcome{};
  }
  const bool may_take_over = observed->settings.takes_over && IsClaimedByAnother(*observed);
  observed->claim_is_abandoned = may_take_over && claims_.IsAbandoned(InstallationOf(observed->job));
  Plan plan = MakePlan(*observed);
  if (plan.ignored) {
    Forget(key);  // until now its namespace may have been ours
    ReportIgnored(observed->job, plan.events);
    return may_take_over ? controller::Outcome{.requeue_after = Claims::kPeriod} : controller::Outcome{};
  }
  Remember(key, IdentityOf(observed->job));
  ConfigureRendezvous(*observed, plan);
  LogActions(key, plan);
  Applied applied = applier_.Apply(*observed, plan.actions);
  if (NamespaceEnds(plan, applied)) {
    observed->namespace_ends = true;
    plan = MakePlan(*observed);
    LogActions(key, plan);
    applied = applier_.Apply(*observed, plan.actions);
  }
  if (applied.is_refusal) return WriteRefusal(*observed, plan, *applied.error);
  if (applied.error) return *applied.error;
  LOCKSTEP_TRY(WriteOutcome(*observed, plan.status, plan.gpus, plan.events));
  return controller::Outcome{.requeue_after = plan.requeue_after};
}

controller::Priority JobReconciler::PriorityOf(const std::string& key) const {
  const kube::Object job = dependencies_.caches.jobs.Get(kube::KeyFromString(key));
  if (job == nullptr || job->at("metadata").contains("deletionTimestamp"))
    return controller::Priority::kNormal;
  const Json* conditions = FindJson(*job, {"status", "conditions"});
  const bool has_started =
      conditions != nullptr && std::any_of(conditions->begin(), conditions->end(), [](const Json& entry) {
        return StringAt(entry, {"type"}) == api::condition::kInitialized &&
               StringAt(entry, {"status"}) == "True";
      });
  return has_started ? controller::Priority::kNormal : controller::Priority::kLow;
}

void JobReconciler::ConfigureRendezvous(const Observed& observed, const Plan& plan) {
  const protocol::JobIdentity job = IdentityOf(observed.job);
  if (plan.rendezvous) {
    dependencies_.rendezvous.Configure(job, *plan.rendezvous);
    for (const rendezvous::PodEnd& end : plan.lost) dependencies_.rendezvous.PodGone(job, end);
  } else if (!plan.keeps_rendezvous) {
    dependencies_.rendezvous.Forget(job);
  }
}

Result<void> JobReconciler::WriteOutcome(const Observed& observed, const api::TrainingJobStatus& status,
                                         const GpuCount& gpus, const std::vector<kube::EventNote>& notes) {
  LOCKSTEP_TRY(const bool written, applier_.WriteStatus(observed, status));
  if (written && status.state != observed.job.status.state) {
    log::Info("job changed state",
              {{"job", observed.job.metadata.namespace_name + "/" + observed.job.metadata.name},
               {"state", status.state}});
  }
  for (const kube::EventNote& note : notes) dependencies_.events.Record(ReferenceTo(observed.job), note);
  dependencies_.observer.OnJob(observed.job, status, gpus, observed.rendezvous);
  return {};
}

Error JobReconciler::WriteRefusal(const Observed& observed, const Plan& plan, const Error& refusal) {
  const api::TrainingJobStatus status = StatusAfterRefusal(observed, plan.status, refusal);
  const auto written = WriteOutcome(observed, status, plan.gpus, NotesOfStatus(observed, status));
  return written.ok() ? refusal : written.error();
}

// Logs once, because the installation that runs the job changes its status every few seconds.
void JobReconciler::ReportIgnored(const api::TrainingJob& job, const std::vector<kube::EventNote>& notes) {
  for (const kube::EventNote& note : notes) {
    {
      const MutexLock lock(mutex_);
      if (!reported_.IsFirst(job.metadata.uid + note.note, dependencies_.clock.Steady())) continue;
    }
    log::Warning("ignored a job of another installation",
                 {{"job", job.metadata.namespace_name + "/" + job.metadata.name}, {"reason", note.note}});
    dependencies_.events.Record(ReferenceTo(job), note);
  }
}

void JobReconciler::Remember(const std::string& key, const protocol::JobIdentity& job) {
  std::optional<protocol::JobIdentity> replaced;
  {
    const MutexLock lock(mutex_);
    protocol::JobIdentity& known = known_[key];
    if (!known.uid.empty() && known.uid != job.uid) replaced = known;
    known = job;
  }
  if (!replaced) return;
  dependencies_.rendezvous.Forget(*replaced);
  dependencies_.observer.OnJobGone(*replaced);
}

bool JobReconciler::IsTracked(const std::string& key) const {
  const MutexLock lock(mutex_);
  return known_.contains(key);
}

void JobReconciler::ForgetThose(const std::function<bool(const std::string& uid)>& which) {
  std::vector<std::string> keys;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, job] : known_) {
      if (which(job.uid)) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) Forget(key);
}

void JobReconciler::Forget(const std::string& key) {
  protocol::JobIdentity job;
  {
    const MutexLock lock(mutex_);
    const auto found = known_.find(key);
    if (found == known_.end()) return;
    job = found->second;
    known_.erase(found);
  }
  dependencies_.rendezvous.Forget(job);
  dependencies_.observer.OnJobGone(job);
}

}  // namespace lockstep::reconcile
