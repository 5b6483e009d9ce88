#include "operator/reconcile/failure_policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "operator/reconcile/progress.h"
#include "operator/reconcile/restart_budget.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

// An uncharged failure has no budget, so one that recurs at once would loop. Its slot waits until the pod
// would be this old.
constexpr Seconds kShortestUnchargedLife{10};
constexpr std::size_t kMostGivenUp = 64;

class Decider {
 public:
  Decider(const Observed& observed, const std::vector<Pod>& pods)
      : observed_(observed),
        job_(observed.job),
        recreates_(job_.spec.failure_policy.restart_strategy == api::RestartStrategy::kRecreate),
        is_charged_(std::any_of(pods.begin(), pods.end(), [&](const Pod& pod) { return IsCharged(pod); })) {
    decision_.attempt = job_.status.attempt;
    JudgeDepartures();
    for (const Pod& pod : pods) Look(pod);
    decision_.recreates = recreates_ && !decision_.to_delete.empty();
  }

  FailureDecision Take() && { return std::move(decision_); }

 private:
  void Look(const Pod& pod) {
    if (decision_.job_failure) return;
    if (IsGivenUp(job_, pod.slot.value_or(-1))) {
      if (!pod.deleting) decision_.to_delete.push_back(pod);
      return;
    }
    std::optional<FailureVerdict> verdict = VerdictOn(pod);
    if (verdict && verdict->remedy == Remedy::kFailJob) {
      decision_.job_failure = std::move(verdict);
      return;
    }
    const auto fault = FaultAt(pod);
    if (fault && fault->is_lost && MayTrainOn(pod)) {
      decision_.wait = std::max(decision_.wait.value_or(Seconds(0)), HeartbeatTimeout());
    } else if (fault && FollowFault(pod, *fault)) {
      return;
    }
    if (!verdict || pod.deleting) return;
    if (verdict->remedy == Remedy::kShrink && !MayShrink()) verdict->remedy = Remedy::kCharge;
    switch (verdict->remedy) {
      case Remedy::kFailJob: return;
      case Remedy::kShrink: return GiveUp(pod, *verdict);
      case Remedy::kForgive: return Forgive(pod, *verdict);
      case Remedy::kCharge: return Charge(pod, *verdict);
    }
  }

  // Ranks that died in pods that still run; reported once, while the status has no record of them.
  void JudgeDepartures() {
    for (const rendezvous::RoundChange& change : NewChanges(observed_)) {
      for (const rendezvous::Departure& departure : change.departures) {
        auto verdict = JudgeDeparture(departure, job_.spec.failure_policy);
        if (!verdict) continue;
        if (verdict->remedy == Remedy::kFailJob) {
          decision_.job_failure = std::move(verdict);
          return;
        }
        by_uid_.emplace(departure.pod_uid, *std::move(verdict));
      }
    }
  }

  std::optional<FailureVerdict> VerdictOn(const Pod& pod) const {
    if (pod.phase == PodPhase::kFailed) return JudgeFailure(pod, job_.spec.failure_policy);
    if (!pod.IsActive()) return std::nullopt;
    if (const auto found = by_uid_.find(pod.uid); found != by_uid_.end()) return found->second;
    // Only ReplacePod marks a running pod.
    if (pod.attempt) return FailureVerdict{.suspects_node = true, .message = "pod " + pod.name};
    return std::nullopt;
  }

  std::optional<NodeFault> FaultAt(const Pod& pod) const {
    if (pod.deleting || pod.phase == PodPhase::kSucceeded) return std::nullopt;
    if (observed_.nodes) {
      const auto node = observed_.nodes->find(pod.node);
      const bool is_known = node != observed_.nodes->end();
      if (auto fault = is_known ? FaultOf(node->second, job_.spec.health_policy) : std::nullopt) return fault;
    }
    if (pod.unhealthy_devices.empty()) return std::nullopt;
    return NodeFault{.reason = "unhealthy devices: " + UnhealthyDevicesOn(pod.node)};
  }

  // True for a pod on a node whose kubelet is cut off or has not reconnected to the API server after an
  // outage.
  bool MayTrainOn(const Pod& pod) const {
    const auto& pods = observed_.rendezvous.responsive_pods;
    const bool is_too_early = observed_.rendezvous.listening < HeartbeatTimeout();
    return is_too_early || std::find(pods.begin(), pods.end(), pod.uid) != pods.end();
  }

  Seconds HeartbeatTimeout() const {
    return std::chrono::seconds(job_.spec.rendezvous.heartbeat_timeout_seconds);
  }

  // For all pods of the job on the node together: the status has one reason per node, and a reason per pod
  // would replace that of another pod.
  std::string UnhealthyDevicesOn(const std::string& node) const {
    std::set<std::string> devices;
    for (const Pod& pod : observed_.pods) {
      if (pod.node == node) devices.insert(pod.unhealthy_devices.begin(), pod.unhealthy_devices.end());
    }
    return Join({devices.begin(), devices.end()}, ", ");
  }

  // False if the pod is to be kept.
  bool FollowFault(const Pod& pod, const NodeFault& fault) {
    const auto& policy = job_.spec.health_policy.node_fault;
    const NodeSuspicion suspicion{pod.node, fault.reason,
                                  policy && policy->action == api::HealthAction::kRestart};
    const api::AvoidedNode* known = FindSuspicion(job_.status, suspicion);
    // Beyond the limit of the status, entries would replace each other, and their pods would be replaced
    // repeatedly.
    const bool is_new =
        known == nullptr && MaySuspectMore(job_.status, decision_.suspects.size(), observed_.now);
    if (is_new) {
      decision_.suspects.push_back(suspicion);
      decision_.notes.push_back("pod " + pod.name + " on node " + pod.node + ": " + fault.reason);
    }
    if (policy && policy->action == api::HealthAction::kReport) return false;
    if (fault.is_lost) {
      decision_.lost.push_back({.pod_uid = pod.uid, .reason = fault.reason, .node = pod.node});
    } else if (is_new) {
      return true;  // the status must be written first
    } else if (known == nullptr || known->since < pod.created) {
      return false;
    }
    decision_.to_delete.push_back(pod);
    return true;
  }

  bool IsCharged(const Pod& pod) const {
    return !pod.deleting && pod.attempt && *pod.attempt <= job_.status.attempt;
  }

  bool MayShrink() const {
    const std::size_t gone = GivenUpSlots(job_).size() + decision_.to_give_up.size();
    return gone < kMostGivenUp &&
           job_.spec.worker.replicas - static_cast<int32_t>(gone) > job_.spec.min_replicas();
  }

  void GiveUp(const Pod& pod, const FailureVerdict& verdict) {
    decision_.to_give_up.push_back(*pod.slot);
    decision_.notes.push_back(verdict.message + "; the job continues without it");
  }

  void Forgive(const Pod& pod, const FailureVerdict& verdict) {
    const Seconds age = pod.created ? observed_.now - *pod.created : kShortestUnchargedLife;
    if (pod.disrupted || age >= kShortestUnchargedLife) {
      decision_.to_delete.push_back(pod);
      decision_.notes.push_back(verdict.message);
    } else {
      decision_.wait = std::max(decision_.wait.value_or(Seconds(0)), kShortestUnchargedLife - age);
    }
  }

  void Charge(const Pod& pod, FailureVerdict verdict) {
    if (IsCharged(pod)) return decision_.to_delete.push_back(pod);
    if (recreates_ && is_charged_) return;  // it is deleted with the others
    const int32_t counted = job_.status.attempt;
    if (!pod.attempt) {
      const int32_t used = UsedRestarts(job_.status, job_.spec.failure_policy, observed_.now);
      const int32_t budget = job_.spec.failure_policy.max_restarts;
      if (used >= budget) {
        verdict.reason = api::reason::kMaxRestarts;
        verdict.message = std::to_string(used) + " of " + std::to_string(budget) +
                          " restarts (failurePolicy.maxRestarts) are used; last: " + verdict.message;
        decision_.job_failure = std::move(verdict);
        return;
      }
      decision_.to_mark.push_back(pod);
      decision_.notes.push_back(verdict.message);
    }
    // Pods that fail together count as one attempt.
    decision_.attempt = std::max(decision_.attempt, pod.attempt.value_or(counted + 1));
    if (verdict.suspects_node && !pod.node.empty()) {
      decision_.suspects.push_back({pod.node, verdict.message});
    }
  }

  const Observed& observed_;
  const api::TrainingJob& job_;
  const bool recreates_;
  const bool is_charged_;                         // the failure of some pod is charged
  std::map<std::string, FailureVerdict> by_uid_;  // verdicts on running pods, by the failures of their ranks
  FailureDecision decision_;
};

}  // namespace

FailureDecision DecideFailures(const Observed& observed, const std::vector<Pod>& pods) {
  return Decider(observed, pods).Take();
}

std::vector<int64_t> GivenUpSlots(const api::TrainingJob& job) {
  if (job.status.observed_generation != job.metadata.generation) return {};
  return job.status.given_up_slots;
}

bool IsGivenUp(const api::TrainingJob& job, int32_t slot) {
  const std::vector<int64_t> slots = GivenUpSlots(job);
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

}  // namespace lockstep::reconcile
