#include "operator/reconcile/decision.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/last_reports.h"
#include "operator/reconcile/waiting.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;
namespace reason = api::reason;
using Rule = std::optional<Decision>;

Decision Fail(std::string_view why, std::string message) {
  return {
      .mode = Mode::kFinished, .finish_as = condition::kFailed, .reason = why, .message = std::move(message)};
}

bool IsForeign(const Observed& observed) {
  const std::string& named = observed.job.spec.managed_by;
  const std::string_view manager = named.empty() ? api::kManagedByLockstep : std::string_view(named);
  return manager != observed.settings.managed_by || !observed.is_namespace_ours;
}

Rule IgnoreForeign(const Observed& observed, const KueueState&) {
  if (!IsForeign(observed)) return std::nullopt;
  return Decision{.mode = Mode::kIgnore};
}

bool HasRunningPod(const std::vector<Pod>& pods) {
  return std::any_of(pods.begin(), pods.end(),
                     [](const Pod& pod) { return pod.phase == PodPhase::kRunning; });
}

std::string WhenItIsTakenOver(const Observed& observed) {
  const std::string annotation(api::kAnnotationInstallation);
  if (observed.claim_is_abandoned) {
    return "The first no longer renews its Lease: the other takes the job over when its workers have ended, "
           "or at once if the job's annotation " +
           annotation + " is removed";
  }
  if (observed.settings.takes_over)
    return "If the first does not renew its Lease for some minutes, the other takes the job over";
  return "If the first no longer exists, remove the job's annotation " + annotation;
}

Rule ClaimedByAnother(const Observed& observed, const KueueState&) {
  if (!IsClaimedByAnother(observed)) return std::nullopt;
  // Running workers have the address of that installation: they would not reach the rendezvous of this one.
  const bool waits_for_workers = !observed.job.metadata.deletion_timestamp && HasRunningPod(observed.pods);
  if (observed.claim_is_abandoned && !waits_for_workers) return std::nullopt;
  return Decision{.mode = Mode::kIgnore,
                  .message = "the installation with the Lease " + InstallationOf(observed.job) +
                             " runs this job; that with the Lease " + observed.settings.installation +
                             " leaves it alone: give them different values of managedBy or different " +
                             "namespaces. " + WhenItIsTakenOver(observed)};
}

Rule Deleted(const Observed& observed, const KueueState&) {
  if (!observed.job.metadata.deletion_timestamp) return std::nullopt;
  return Decision{.mode = Mode::kDelete, .removal = DecideRemoval(observed)};
}

Rule FinishedBefore(const Observed& observed, const KueueState&) {
  if (!api::IsFinished(observed.job.status.conditions)) return std::nullopt;
  return Decision{.mode = Mode::kFinished};
}

struct SpecProblem {
  std::string_view reason;
  std::string message;
};

SpecProblem ProblemOfSpec(const Observed& observed) {
  if (!observed.unreadable.empty())
    return {reason::kVersionMismatch,
            Join(observed.unreadable, "; ") +
                "; the definition of jobs in this cluster is of another version than "
                "the operator: bring both to one version with helm upgrade"};
  return {reason::kInvalidSpec, Join(observed.violations, "; ")};
}

// A job that was never valid fails. If it was valid before, its pods continue with the spec that they were
// created from, and the job continues once its spec is valid again. The same applies if the operator is of
// the wrong version to decide. Suspension and eviction do not need a valid spec.
Rule Invalid(const Observed& observed, const KueueState& kueue) {
  if (IsValid(observed)) return std::nullopt;
  SpecProblem problem = ProblemOfSpec(observed);
  const bool was_valid = observed.job.status.observed_generation > 0;
  if (!was_valid && problem.reason != reason::kVersionMismatch)
    return Fail(problem.reason, std::move(problem.message));
  if (observed.job.spec.suspend || kueue.reason == reason::kEvicted) return std::nullopt;
  return Decision{.mode = Mode::kHold, .reason = problem.reason, .message = std::move(problem.message)};
}

bool ReachedTheEnd(const Observed& observed) {
  const auto succeeded = [](const Pod& pod) { return pod.phase == PodPhase::kSucceeded; };
  return observed.rendezvous.completed || std::any_of(observed.pods.begin(), observed.pods.end(), succeeded);
}

// One worker that completed is sufficient: the others hold the same weights, and in a program of the user's
// own a worker completes only when the rendezvous says so. A replacement would start from nothing. Workers
// that still run get time to leave.
Rule Completed(const Observed& observed, const KueueState&) {
  if (!ReachedTheEnd(observed)) return std::nullopt;
  const auto leaving = [](const Pod& pod) { return pod.phase == PodPhase::kRunning; };
  const auto count = std::count_if(observed.pods.begin(), observed.pods.end(), leaving);
  if (count > 0)
    return Decision{.mode = Mode::kDrain, .message = std::to_string(count) + " workers are leaving"};
  return Decision{.mode = Mode::kFinished,
                  .finish_as = condition::kComplete,
                  .reason = reason::kTrainingDone,
                  .message = "training reached its end",
                  .ended = EndOfTraining(observed.pods, observed.job.status, observed.now)};
}

Rule Suspended(const Observed& observed, const KueueState&) {
  if (!observed.job.spec.suspend) return std::nullopt;
  return Decision{
      .mode = Mode::kSuspend, .reason = reason::kSuspendRequested, .message = "spec.suspend is true"};
}

Rule Queued(const Observed&, const KueueState& kueue) {
  if (!kueue.is_asked || kueue.admission) return std::nullopt;
  return Decision{.mode = kueue.is_unknown ? Mode::kHold : Mode::kSuspend,
                  .reason = kueue.reason,
                  .message = kueue.message};
}

std::optional<Seconds> UntilEndOf(const Observed& observed, std::optional<int64_t> limit) {
  if (!limit) return std::nullopt;
  const WallTime start = observed.job.status.start_time.value_or(observed.now);
  return Seconds(static_cast<double>(*limit)) - Seconds(observed.now - start);
}

Rule PastDeadline(const Observed& observed, const KueueState&) {
  const auto& limit = observed.job.spec.run_policy.active_deadline_seconds;
  if (!limit || UntilEndOf(observed, limit) > Seconds(0)) return std::nullopt;
  return Fail(reason::kDeadlineExceeded,
              "active for longer than runPolicy.activeDeadlineSeconds, " + std::to_string(*limit));
}

// A program of the user's own reports no steps: its first round counts.
bool HasStarted(const Observed& observed) {
  if (!observed.job.spec.training)
    return api::IsTrue(observed.job.status.conditions, condition::kInitialized);
  const auto& progress = observed.job.status.progress;
  return observed.rendezvous.progress.step > 0 || (progress && progress->step > 0);
}

Rule PastStartupDeadline(const Observed& observed, const KueueState&) {
  const auto& limit = observed.job.spec.run_policy.startup_deadline_seconds;
  if (!limit || HasStarted(observed) || UntilEndOf(observed, limit) > Seconds(0)) return std::nullopt;
  const auto waiting = FindWaitingReason(observed);
  const std::string missing = observed.job.spec.training ? "no step" : "no round";
  return Fail(reason::kStartupDeadlineExceeded, missing + " within runPolicy.startupDeadlineSeconds, " +
                                                    std::to_string(*limit) +
                                                    (waiting ? "; last: " + waiting->message : ""));
}

std::optional<Seconds> UntilDeadline(const Observed& observed) {
  const api::RunPolicy& policy = observed.job.spec.run_policy;
  const auto active = UntilEndOf(observed, policy.active_deadline_seconds);
  if (HasStarted(observed)) return active;
  const auto startup = UntilEndOf(observed, policy.startup_deadline_seconds);
  return active && startup ? std::min(active, startup) : active ? active : startup;
}

Decision Run(const Observed& observed, const PodGroups& groups) {
  std::vector<Pod> wanted;
  wanted.reserve(groups.slots.size());
  for (const auto& [slot, pod] : groups.slots) wanted.push_back(pod);
  FailureDecision failures = DecideFailures(observed, wanted);
  if (failures.job_failure) return Fail(failures.job_failure->reason, failures.job_failure->message);
  return {.mode = Mode::kRun,
          .failures = std::move(failures),
          .gang = DecideGangStart(observed, groups),
          .deadline = UntilDeadline(observed)};
}

}  // namespace

bool IsClaimedByAnother(const Observed& observed) {
  const std::string holder = InstallationOf(observed.job);
  return !IsForeign(observed) && !holder.empty() && holder != observed.settings.installation;
}

Decision Decide(const Observed& observed, const PodGroups& groups, const KueueState& kueue) {
  for (const auto rule : {IgnoreForeign, ClaimedByAnother, Deleted, FinishedBefore, Completed, Invalid,
                          Suspended, Queued, PastDeadline, PastStartupDeadline}) {
    if (Rule decision = rule(observed, kueue)) return *std::move(decision);
  }
  return Run(observed, groups);
}

}  // namespace lockstep::reconcile
