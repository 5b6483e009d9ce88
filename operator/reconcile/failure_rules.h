#pragma once
// What one failure means for its job: failurePolicy.rules first, then what everybody would expect. Pure.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/pods.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// What a pod or a rank in it ended of, as failurePolicy.rules see it.
struct Failure {
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::optional<int> exit_code;
  std::map<std::string, std::string> conditions;  // of the pod: status by type
};

[[nodiscard]] Failure FailureOf(const Pod& pod);
[[nodiscard]] Failure FailureOf(const rendezvous::Departure& departure);

enum class Remedy {
  kFailJob,
  kCharge,   // the pod is replaced on the budget of maxRestarts
  kForgive,  // the pod is replaced: nobody's fault
  kShrink,   // the job goes on without the pod
};

struct FailureVerdict {
  Remedy remedy = Remedy::kCharge;
  bool suspects_node = false;  // the next pod had better be elsewhere
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::string_view reason;  // of kFailJob: api::reason::…
  std::string message;      // "pod a-worker-1: exit code 3: no such data set"
};

// The first rule that matches; null: none does.
[[nodiscard]] const api::FailureRule* FindRule(const api::FailurePolicy& policy, const Failure& failure);
// Of a pod that failed.
[[nodiscard]] FailureVerdict JudgeFailure(const Pod& pod, const api::FailurePolicy& policy);
// Of a rank that died in a pod that lives on, where it is respawned at no cost; nullopt: leave it at that.
[[nodiscard]] std::optional<FailureVerdict> JudgeDeparture(const rendezvous::Departure& departure,
                                                           const api::FailurePolicy& policy);

}  // namespace lockstep::reconcile
