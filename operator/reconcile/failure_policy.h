#pragma once
// What the end of a pod means for its job. Pure.
//
// A permanent failure fails the job. A charged one costs an attempt of failurePolicy.maxRestarts. The charge
// is made crash-safe by its order: the pod is marked with the attempt, then the status shows it, and only
// then the pod goes; whoever reads any state between comes to the same count.
//
// A rank that dies in a living pod is respawned there and costs nothing; of the rules, only FailJob is about
// it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct FailureVerdict {
  bool permanent = false;
  bool charged = false;
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::string_view reason;  // of a permanent one: api::reason::…
  std::string message;      // "pod a-worker-1: exit code 3: no such data set"
};

// What a pod or a rank in it ended of, as failurePolicy.rules see it.
struct Failure {
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::optional<int> exit_code;
  std::map<std::string, std::string> conditions;  // of the pod: status by type
};

[[nodiscard]] Failure FailureOf(const Pod& pod);
[[nodiscard]] Failure FailureOf(const rendezvous::Departure& departure);

// The first rule that matches; null: none does.
[[nodiscard]] const api::FailureRule* FindRule(const api::FailurePolicy& policy, const Failure& failure);
[[nodiscard]] FailureVerdict JudgeFailure(const Pod& pod, const api::FailurePolicy& policy);

struct FailureDecision {
  std::optional<FailureVerdict> job_failure;  // the job must end
  int32_t attempt = 0;                        // what status.attempt must be
  std::vector<Pod> to_mark;                   // with `attempt`
  std::vector<Pod> to_delete;                 // accounted for: their slots become free
  std::vector<std::string> notes;             // for events: one for each pod marked or uncharged
  std::optional<Seconds> wait;                // until a pod that ended at once may be replaced
};

// `pods` are those of wanted slots. Looks at every failed one that is not being deleted.
[[nodiscard]] FailureDecision DecideFailures(const Observed& observed, const std::vector<Pod>& pods);

}  // namespace lockstep::reconcile
