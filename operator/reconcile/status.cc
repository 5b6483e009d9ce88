#include "operator/reconcile/status.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/goodput.h"
#include "operator/reconcile/progress.h"
#include "operator/reconcile/restart_budget.h"
#include "operator/reconcile/rollout.h"
#include "operator/reconcile/waiting.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;
namespace reason = api::reason;
using api::ConditionStatus;

// Sets conditions of one status and holds the arguments that all of them share.
class Conditions {
 public:
  Conditions(const Observed& observed, api::TrainingJobStatus& status)
      : status_(status), generation_(observed.job.metadata.generation), now_(observed.now) {}

  void True(std::string_view type, std::string_view why, std::string message = "") {
    api::SetCondition(status_.conditions, {type, ConditionStatus::kTrue, why, std::move(message)},
                      generation_, now_);
  }
  void False(std::string_view type, std::string_view why, std::string message = "") {
    api::SetCondition(status_.conditions, {type, ConditionStatus::kFalse, why, std::move(message)},
                      generation_, now_);
  }
  // A condition that was never true is not listed as false.
  void Clear(std::string_view type, std::string_view why) {
    if (api::FindCondition(status_.conditions, type) != nullptr) False(type, why);
  }
  [[nodiscard]] bool IsTrue(std::string_view type) const { return api::IsTrue(status_.conditions, type); }
  [[nodiscard]] bool IsFalse(std::string_view type) const {
    const api::Condition* found = api::FindCondition(status_.conditions, type);
    return found != nullptr && found->status == ConditionStatus::kFalse;
  }

 private:
  api::TrainingJobStatus& status_;
  int64_t generation_;
  WallTime now_;
};

std::string CountOf(int64_t part, int64_t whole, std::string_view what) {
  return std::to_string(part) + " of " + std::to_string(whole) + " " + std::string(what);
}

void SetFinished(Conditions& set, const Decision& decision) {
  if (!decision.finish_as.empty()) set.True(decision.finish_as, decision.reason, decision.message);
  for (const auto type : {condition::kProgressing, condition::kRestarting, condition::kDegraded}) {
    set.Clear(type, reason::kJobFinished);
  }
  if (!set.IsTrue(condition::kFailed)) set.Clear(condition::kStalled, reason::kJobFinished);
}

// Derived from all other conditions; the state is the reason.
void SetReadiness(const std::string& state, Conditions& set) {
  const bool is_ready = state == "Running" || state == "Complete";
  if (is_ready) set.True(condition::kReady, state);
  if (!is_ready) set.False(condition::kReady, state);
  // A failed job stays failed: only a new job by a user replaces it.
  if (state == "Failed") set.True(condition::kStalled, state);
  const bool is_still = is_ready || state == "Failed" || state == "Stalled" || state == "Suspended";
  if (is_still) set.Clear(condition::kReconciling, state);
  if (!is_still) set.True(condition::kReconciling, state);
}

void SetQuotaReserved(const KueueState& kueue, const Decision& decision, Conditions& set) {
  if (!kueue.is_asked) return set.Clear(condition::kQuotaReserved, reason::kResumed);
  if (decision.reason == reason::kSuspendRequested)
    return set.Clear(condition::kQuotaReserved, decision.reason);
  if (kueue.admission) return set.True(condition::kQuotaReserved, reason::kAdmitted);
  set.False(condition::kQuotaReserved, kueue.reason, kueue.message);
}

void SetSuspended(const Decision& decision, Conditions& set) {
  set.True(condition::kSuspended, decision.reason, decision.message);
  for (const auto type : {condition::kScheduled, condition::kInitialized, condition::kProgressing,
                          condition::kRestarting, condition::kDegraded, condition::kStalled}) {
    set.Clear(type, decision.reason);
  }
}

void SetScheduled(const Observed& observed, const PodGroups& groups,
                  const std::optional<WaitingReason>& waiting, Conditions& set) {
  const auto given_up = static_cast<int64_t>(GivenUpSlots(observed.job).size());
  const int64_t wanted = observed.job.spec.pod_count() - given_up;
  const auto placed = std::count_if(groups.slots.begin(), groups.slots.end(), [&](const auto& entry) {
    return !entry.second.node.empty() && !IsGivenUp(observed.job, entry.first);
  });
  if (placed == wanted) return set.True(condition::kScheduled, reason::kPodsScheduled);
  const bool unschedulable = waiting && waiting->reason == reason::kUnschedulable;
  set.False(condition::kScheduled, unschedulable ? reason::kUnschedulable : reason::kPodsStarting,
            unschedulable ? waiting->message : CountOf(placed, wanted, "pods have a node"));
}

void SetStalled(const std::optional<WaitingReason>& waiting, Conditions& set) {
  if (waiting && waiting->needs_people)
    return set.True(condition::kStalled, waiting->reason, waiting->message);
  set.Clear(condition::kStalled, reason::kRecovered);
}

void SetProgressing(const Observed& observed, const std::optional<WaitingReason>& waiting, Conditions& set) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  // A program of the user's own reports no steps, only its round.
  const bool has_begun = view.progress.step > 0 || !observed.job.spec.training;
  const bool makes_steps = view.world_size > 0 && has_begun && view.progress.round == view.round;
  if (makes_steps || view.completed) return set.True(condition::kProgressing, reason::kTraining);
  if (waiting) return set.False(condition::kProgressing, waiting->reason, waiting->message);
  if (view.world_size > 0)
    return set.False(condition::kProgressing, reason::kRoundFormed, "waiting for the first step");
  const bool starts = !PodsNotStarted(observed).empty();
  set.False(condition::kProgressing, starts ? reason::kPodsStarting : reason::kRendezvous,
            starts ? "waiting for pods to start" : "waiting for workers to join");
}

std::string DescribeStragglers(const std::vector<rendezvous::SlowRank>& stragglers) {
  constexpr std::size_t kNamed = 3;  // the others are only counted
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(kNamed, stragglers.size()); ++i)
    named.push_back(stragglers[i].ToString());
  if (stragglers.size() > kNamed)
    named.push_back("and " + std::to_string(stragglers.size() - kNamed) + " more");
  return Join(named, "; ");
}

std::string DescribeOutage(const rendezvous::StoreOutage& outage) {
  return outage.pod + ": " + outage.waiting + " has waited since " + FormatTime(outage.since) +
         " for a store that does not answer: " + outage.reason;
}

// For a job whose replicas train.
void SetDegraded(const Observed& observed, Conditions& set) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  const auto wanted = static_cast<std::size_t>(observed.job.spec.worker.replicas);
  if (view.members.size() < wanted) {
    const std::string train =
        CountOf(static_cast<int64_t>(view.members.size()), static_cast<int64_t>(wanted), "replicas train");
    const auto until_shrunk = UntilShrunk(observed);
    const bool has_shrunk = until_shrunk && *until_shrunk <= Seconds(0);
    return has_shrunk ? set.True(condition::kDegraded, reason::kShrunk,
                                 train + "; the job continues with these until there is room for more")
                      : set.True(condition::kDegraded, reason::kReplicasMissing, train);
  }
  if (view.save_failed) {
    return set.True(condition::kDegraded, reason::kCheckpointFailed,
                    "no checkpoint of step " + std::to_string(view.save_failed->step) +
                        " was stored, and none since then: " + view.save_failed->reason);
  }
  if (!view.stragglers.empty())
    return set.True(condition::kDegraded, reason::kStraggler, DescribeStragglers(view.stragglers));
  set.Clear(condition::kDegraded, reason::kAllReplicasIn);
}

void SetMembership(const Observed& observed, Conditions& set) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  if (view.store_outage)
    set.True(condition::kDegraded, reason::kStoreUnavailable, DescribeOutage(*view.store_outage));
  if (view.world_size > 0) {
    set.True(condition::kInitialized, reason::kRoundFormed);
    set.Clear(condition::kRestarting, reason::kRecovered);
    if (!view.store_outage) SetDegraded(observed, set);
  } else if (set.IsTrue(condition::kInitialized) && !view.completed) {
    set.True(condition::kRestarting, reason::kReplicaFailed,
             view.changes.empty() ? "" : view.changes.back().reason);
  }
}

void SetUpdated(const Observed& observed, const PodGroups& groups, Conditions& set) {
  const int64_t outdated = FindRollout(observed, groups).outdated;
  if (outdated > 0) {
    return set.False(
        condition::kUpdated, reason::kTemplateChanged,
        CountOf(outdated, observed.job.spec.pod_count(), "pods") +
            " are of an older spec.worker.template; they are replaced one at a time, each once all "
            "others train");
  }
  if (set.IsFalse(condition::kUpdated)) set.True(condition::kUpdated, reason::kPodsReplaced);
}

void SetRunning(const Observed& observed, const PodGroups& groups, const Decision& decision,
                Conditions& set) {
  const std::optional<WaitingReason> waiting = FindWaitingReason(observed);
  set.Clear(condition::kSuspended, reason::kResumed);
  SetScheduled(observed, groups, waiting, set);
  if (!decision.gang.is_refused) SetStalled(waiting, set);
  SetUpdated(observed, groups, set);
  const bool was_running = set.IsTrue(condition::kInitialized) && set.IsTrue(condition::kProgressing);
  if (!IsRoundKnown(observed) && was_running) return;  // see IsRoundKnown
  SetMembership(observed, set);
  SetProgressing(observed, waiting, set);
}

void CountPods(const Observed& observed, api::TrainingJobStatus& status) {
  const auto count = [&](auto predicate) {
    return static_cast<int32_t>(std::count_if(observed.pods.begin(), observed.pods.end(), predicate));
  };
  const api::TrainingJobSpec& spec = observed.job.spec;
  // Any pod may be a standby. `scale` compares the number of the others with worker.replicas.
  const auto without_standbys = [&](int32_t pods) {
    return pods - std::clamp(pods - spec.worker.replicas, 0, spec.standby_replicas);
  };
  status.replicas = without_standbys(count([](const Pod& pod) { return pod.IsActive() && !pod.deleting; }));
  status.ready_replicas = without_standbys(count([](const Pod& pod) { return pod.IsActive() && pod.ready; }));
  if (IsRoundKnown(observed)) {
    const bool trains = observed.rendezvous.world_size > 0;
    status.standby_replicas = trains ? std::min(observed.rendezvous.waiting, spec.standby_replicas) : 0;
  }
  status.selector = api::WorkerSelector(observed.job.metadata.name);
}

void SetTimes(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status) {
  if (decision.mode == Mode::kSuspend) status.start_time.reset();
  if (decision.mode == Mode::kRun && !status.start_time) status.start_time = observed.now;
  if (decision.mode == Mode::kFinished && !status.completion_time)
    status.completion_time = decision.ended.value_or(observed.now);
}

void ApplyFailures(const Observed& observed, const FailureDecision& failures,
                   api::TrainingJobStatus& status) {
  ChargeAttempt(status, observed.job.spec.failure_policy, failures.attempt, observed.now);
  for (const NodeSuspicion& suspect : failures.suspects) AvoidNode(status, suspect, observed.now);
  status.given_up_slots.insert(status.given_up_slots.end(), failures.to_give_up.begin(),
                               failures.to_give_up.end());
}

// The last pass does not write the status: removing the finalizer deletes the job.
void SetRemoval(const Observed& observed, const RemovalDecision& removal, api::TrainingJobStatus& status) {
  if (!removal.waits_for) return;
  Conditions set(observed, status);
  set.False(condition::kCheckpointsRemoved, reason::kRemoving, *removal.waits_for);
}

}  // namespace

api::TrainingJobStatus MakeStatus(const Observed& observed, const PodGroups& groups, const Decision& decision,
                                  const KueueState& kueue) {
  api::TrainingJobStatus status = observed.job.status;
  if (decision.mode == Mode::kDelete) SetRemoval(observed, decision.removal, status);
  if (decision.mode == Mode::kIgnore || decision.mode == Mode::kDelete) return status;
  status.given_up_slots = GivenUpSlots(observed.job);  // those of another generation no longer apply
  status.observed_generation = observed.job.metadata.generation;
  CountPods(observed, status);
  SetTimes(observed, decision, status);
  const bool finishes_now = decision.mode == Mode::kFinished && !decision.finish_as.empty();
  if (decision.mode != Mode::kFinished || finishes_now) {
    const bool is_ending = decision.mode == Mode::kDrain || decision.mode == Mode::kSuspend;
    ApplyRendezvous(observed, finishes_now || is_ending, status);
  }
  if (decision.mode == Mode::kRun) {
    ApplyFailures(observed, decision.failures, status);
    status.gang = decision.gang.status;
  }
  Conditions set(observed, status);
  if (decision.mode == Mode::kFinished) SetFinished(set, decision);
  if (decision.mode == Mode::kSuspend) SetSuspended(decision, set);
  if (decision.mode == Mode::kHold) set.True(condition::kStalled, decision.reason, decision.message);
  if (decision.mode == Mode::kRun || decision.mode == Mode::kDrain)
    SetRunning(observed, groups, decision, set);
  if (decision.mode == Mode::kRun || decision.mode == Mode::kSuspend) SetQuotaReserved(kueue, decision, set);
  if (status.rendezvous && (decision.mode == Mode::kFinished || decision.mode == Mode::kSuspend)) {
    status.rendezvous->world_size = 0;
  }
  status.state = api::StateOf(status.conditions);
  ApplyGoodput(observed, decision, status);
  SetReadiness(status.state, set);
  return status;
}

api::TrainingJobStatus StatusAfterRefusal(const Observed& observed, api::TrainingJobStatus status,
                                          const Error& refusal) {
  // The plan has cleared the value of the pass before; setting it again would update its time with every
  // retry.
  if (observed.job.status.goodput) status.goodput = observed.job.status.goodput;
  for (const std::string_view type :
       {condition::kStalled, condition::kProgressing, condition::kReady, condition::kReconciling}) {
    const api::Condition* before = api::FindCondition(observed.job.status.conditions, type);
    for (api::Condition& entry : status.conditions) {
      if (before != nullptr && entry.type == type) entry = *before;
    }
  }
  Conditions set(observed, status);
  if (refusal.code != ErrorCode::kInvalidArgument) {
    set.True(condition::kStalled, reason::kPodRejected, refusal.message);
    // its spec was valid before and may become valid again
  } else if (observed.job.status.observed_generation > 0) {
    set.True(condition::kStalled, reason::kInvalidSpec, refusal.message);
  } else {
    set.True(condition::kFailed, reason::kInvalidSpec, refusal.message);
    status.completion_time = observed.now;
  }
  set.Clear(condition::kProgressing, reason::kPodRejected);
  status.state = api::StateOf(status.conditions);
  SetReadiness(status.state, set);
  return status;
}

}  // namespace lockstep::reconcile
