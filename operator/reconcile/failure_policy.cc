#include "operator/reconcile/failure_policy.h"

#include <algorithm>

#include "runtime/common/api/conditions.h"
#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::reconcile {
namespace {

using protocol::ExitCode;

// An uncharged failure has no budget, so one that comes at once would loop: its slot waits this long.
constexpr Seconds kShortestUnchargedLife{10};

std::string_view PermanentReason(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kBadConfiguration: return api::reason::kBadConfiguration;
    case ExitCode::kStore: return api::reason::kObjectStore;
    default: return api::reason::kUserError;
  }
}

std::string MessageOf(const Pod& pod) {
  std::string message = "pod " + pod.name;
  if (pod.exit_code) message += ": exit code " + std::to_string(*pod.exit_code);
  if (!pod.message.empty()) message += ": " + pod.message;
  while (message.ends_with('\n') || message.ends_with(' ')) message.pop_back();
  return message;
}

}  // namespace

FailureVerdict JudgeFailure(const Pod& pod) {
  FailureVerdict verdict{.message = MessageOf(pod)};
  if (pod.exit_code) {
    verdict.cause = api::EnumFromName<api::FailureCause>(protocol::CauseOf(*pod.exit_code))
                        .value_or(api::FailureCause::kInfrastructure);
  }
  // Whoever is told to go may fail on the way out with any code.
  const bool was_told_to_stop = pod.exit_code == static_cast<int>(ExitCode::kPreempted);
  if (pod.disrupted || pod.deleting || was_told_to_stop) {
    verdict.cause = api::FailureCause::kPreemption;
  } else if (pod.exit_code && protocol::IsPermanent(*pod.exit_code)) {
    verdict.permanent = true;
    verdict.reason = PermanentReason(*pod.exit_code);
  } else {
    verdict.charged = true;
  }
  return verdict;
}

FailureDecision DecideFailures(const Observed& observed, const std::vector<Pod>& pods) {
  const int32_t counted = observed.job.status.attempt;
  const int32_t budget = observed.job.spec.failure_policy.max_restarts;
  FailureDecision decision{.attempt = counted};
  for (const Pod& pod : pods) {
    if (pod.phase != PodPhase::kFailed) continue;
    FailureVerdict verdict = JudgeFailure(pod);
    if (verdict.permanent) {
      decision.job_failure = std::move(verdict);
      return decision;
    }
    if (pod.deleting) continue;
    if (!verdict.charged) {
      const Seconds age = pod.created ? observed.now - *pod.created : kShortestUnchargedLife;
      if (pod.disrupted || age >= kShortestUnchargedLife) {
        decision.to_delete.push_back(pod);
        decision.notes.push_back(verdict.message);
      } else {
        decision.wait = std::max(decision.wait.value_or(Seconds(0)), kShortestUnchargedLife - age);
      }
    } else if (!pod.attempt) {
      if (counted >= budget) {
        verdict.reason = api::reason::kMaxRestarts;
        verdict.message = std::to_string(counted) + " of " + std::to_string(budget) +
                          " restarts (failurePolicy.maxRestarts) are used; last: " + verdict.message;
        decision.job_failure = std::move(verdict);
        return decision;
      }
      // Pods that fail together are one attempt.
      decision.to_mark.push_back(pod);
      decision.notes.push_back(verdict.message);
      decision.attempt = std::max(decision.attempt, counted + 1);
    } else if (*pod.attempt <= counted) {
      decision.to_delete.push_back(pod);
    } else {
      decision.attempt = std::max(decision.attempt, *pod.attempt);
    }
  }
  return decision;
}

}  // namespace lockstep::reconcile
