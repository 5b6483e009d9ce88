#include "operator/reconcile/failure_rules.h"

#include <algorithm>

#include "runtime/common/api/conditions.h"
#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::reconcile {
namespace {

using protocol::ExitCode;

std::string_view PermanentReason(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kBadConfiguration: return api::reason::kBadConfiguration;
    case ExitCode::kStore: return api::reason::kObjectStore;
    default: return api::reason::kUserError;
  }
}

std::optional<int> MeaningOf(const Pod& pod) {
  if (!pod.exit_code) return std::nullopt;
  return protocol::MeaningOf(*pod.exit_code, pod.runs_program);
}

std::string MessageOf(const Pod& pod) {
  std::string message = "pod " + pod.name;
  if (pod.exit_code) message += ": exit code " + std::to_string(*pod.exit_code);
  if (pod.overstepped) message += ": evicted because it exceeded a limit of its own";
  if (!pod.message.empty()) message += ": " + pod.message;
  while (message.ends_with('\n') || message.ends_with(' ')) message.pop_back();
  return message;
}

// A pod that was asked to stop may exit with any code.
bool WasAskedToStop(const Pod& pod) {
  if (pod.overstepped) return false;
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

void FollowRule(const api::FailureRule& rule, FailureVerdict& verdict) {
  switch (rule.action) {
    case api::FailureAction::kFailJob: {
      const std::string name = rule.name.empty() ? "" : " " + rule.name;
      verdict.remedy = Remedy::kFailJob;
      verdict.reason = api::reason::kFailurePolicy;
      verdict.message = "the rule" + name + " of failurePolicy.rules says FailJob: " + verdict.message;
      return;
    }
    case api::FailureAction::kRestart: verdict.remedy = Remedy::kCharge; return;
    case api::FailureAction::kRestartIgnoringLimit: verdict.remedy = Remedy::kForgive; return;
    case api::FailureAction::kReplacePod:
      verdict.remedy = Remedy::kCharge;
      verdict.suspects_node = true;
      return;
    case api::FailureAction::kShrinkJob: verdict.remedy = Remedy::kShrink; return;
  }
}

}  // namespace

Failure FailureOf(const Pod& pod) {
  Failure failure{.exit_code = pod.exit_code, .conditions = pod.conditions};
  if (WasAskedToStop(pod)) {
    failure.cause = api::FailureCause::kPreemption;
  } else if (pod.overstepped) {
    failure.cause = api::FailureCause::kUserError;
  } else if (const auto meaning = MeaningOf(pod)) {
    failure.cause = protocol::CauseOf(*meaning);
  }
  return failure;
}

Failure FailureOf(const rendezvous::Departure& departure) {
  return {.cause = departure.cause, .exit_code = departure.exit_code};
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
    FollowRule(*rule, verdict);
  } else if (WasAskedToStop(pod)) {
    verdict.remedy = Remedy::kForgive;
  } else if (const auto meaning = MeaningOf(pod); meaning && protocol::IsPermanent(*meaning)) {
    verdict.remedy = Remedy::kFailJob;
    verdict.reason = PermanentReason(*meaning);
  } else {
    // This includes pods in which ranks failed failurePolicy.inPlaceLimit times without a step between. The
    // failure of a program of the user's own says nothing about its node.
    verdict.suspects_node = !pod.runs_program && (failure.cause == api::FailureCause::kInfrastructure ||
                                                  failure.cause == api::FailureCause::kHang);
  }
  return verdict;
}

std::optional<FailureVerdict> JudgeDeparture(const rendezvous::Departure& departure,
                                             const api::FailurePolicy& policy) {
  const Failure failure = FailureOf(departure);
  const api::FailureRule* rule = FindRule(policy, failure);
  if (rule == nullptr || rule->action == api::FailureAction::kRestart ||
      rule->action == api::FailureAction::kRestartIgnoringLimit) {
    return std::nullopt;
  }
  FailureVerdict verdict{.cause = failure.cause, .message = departure.pod + ": " + departure.reason};
  FollowRule(*rule, verdict);
  return verdict;
}

}  // namespace lockstep::reconcile
