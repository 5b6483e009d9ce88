#include "operator/reconcile/failure_policy.h"

#include <algorithm>

#include "operator/reconcile/progress.h"
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

// Whoever is told to go may fail on the way out with any code.
bool WasToldToGo(const Pod& pod) {
  return pod.disrupted || pod.deleting || pod.exit_code == static_cast<int>(ExitCode::kPreempted);
}

bool Matches(const api::ExitCodeMatch& match, std::optional<int> exit_code) {
  if (!exit_code.has_value() || *exit_code == 0) return false;
  const bool is_listed =
      std::find(match.values.begin(), match.values.end(), *exit_code) != match.values.end();
  return is_listed == (match.match_operator == api::ExitCodeOperator::kIn);
}

bool Matches(const api::FailureRule& rule, const Failure& failure) {
  if (rule.on_exit_codes) return Matches(*rule.on_exit_codes, failure.exit_code);
  if (!rule.on_causes.empty()) {
    return std::find(rule.on_causes.begin(), rule.on_causes.end(), failure.cause) != rule.on_causes.end();
  }
  return std::any_of(rule.on_pod_conditions.begin(), rule.on_pod_conditions.end(), [&](const auto& match) {
    const auto found = failure.conditions.find(match.type);
    return found != failure.conditions.end() && found->second == api::NameOf(match.status);
  });
}

FailureVerdict FailByRule(const api::FailureRule& rule, api::FailureCause cause, const std::string& message) {
  const std::string name = rule.name.empty() ? "" : " " + rule.name;
  return {.permanent = true,
          .cause = cause,
          .reason = api::reason::kFailurePolicy,
          .message = "the rule" + name + " of failurePolicy.rules says FailJob: " + message};
}

// A rank died in a pod that lives on.
std::optional<FailureVerdict> JudgeDepartures(const Observed& observed) {
  for (const rendezvous::RoundChange& change : NewChanges(observed)) {
    for (const rendezvous::Departure& departure : change.departures) {
      const Failure failure = FailureOf(departure);
      const api::FailureRule* rule = FindRule(observed.job.spec.failure_policy, failure);
      if (rule == nullptr || rule->action != api::FailureAction::kFailJob) continue;
      return FailByRule(*rule, failure.cause, departure.pod + ": " + departure.reason);
    }
  }
  return std::nullopt;
}

}  // namespace

Failure FailureOf(const Pod& pod) {
  Failure failure{.exit_code = pod.exit_code, .conditions = pod.conditions};
  if (WasToldToGo(pod)) {
    failure.cause = api::FailureCause::kPreemption;
  } else if (pod.exit_code) {
    failure.cause = api::EnumFromName<api::FailureCause>(protocol::CauseOf(*pod.exit_code))
                        .value_or(api::FailureCause::kInfrastructure);
  }
  return failure;
}

Failure FailureOf(const rendezvous::Departure& departure) {
  return {
      .cause =
          api::EnumFromName<api::FailureCause>(departure.cause).value_or(api::FailureCause::kInfrastructure),
      .exit_code = departure.exit_code};
}

const api::FailureRule* FindRule(const api::FailurePolicy& policy, const Failure& failure) {
  const auto found = std::find_if(policy.rules.begin(), policy.rules.end(),
                                  [&](const api::FailureRule& rule) { return Matches(rule, failure); });
  return found == policy.rules.end() ? nullptr : &*found;
}

FailureVerdict JudgeFailure(const Pod& pod, const api::FailurePolicy& policy) {
  const Failure failure = FailureOf(pod);
  FailureVerdict verdict{.cause = failure.cause, .message = MessageOf(pod)};
  if (const api::FailureRule* rule = FindRule(policy, failure)) {
    if (rule->action == api::FailureAction::kFailJob)
      return FailByRule(*rule, failure.cause, verdict.message);
    verdict.charged = rule->action == api::FailureAction::kRestart;
  } else if (WasToldToGo(pod)) {
    verdict.charged = false;
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
  FailureDecision decision{.job_failure = JudgeDepartures(observed), .attempt = counted};
  if (decision.job_failure) return decision;
  for (const Pod& pod : pods) {
    if (pod.phase != PodPhase::kFailed) continue;
    FailureVerdict verdict = JudgeFailure(pod, observed.job.spec.failure_policy);
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
