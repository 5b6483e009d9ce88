#pragma once
// What a job should do now, and why: a chain of rules; the first that applies wins. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/checkpoint_removal.h"
#include "operator/reconcile/failure_policy.h"
#include "operator/reconcile/gang_start.h"
#include "operator/reconcile/kueue.h"
#include "operator/reconcile/observed.h"
#include "operator/reconcile/pods.h"

namespace lockstep::reconcile {

enum class Mode {
  kIgnore,    // the job belongs to another controller or another installation
  kDelete,    // the object is being deleted
  kFinished,  // Complete or Failed, now or earlier
  kSuspend,
  kHold,   // the spec has become invalid: what runs continues unchanged until the spec is corrected
  kDrain,  // training has ended; the last workers are leaving
  kRun,
};

struct Decision {
  Mode mode = Mode::kRun;
  // For kFinished: the condition that this pass sets, Complete or Failed. Empty: it was set earlier.
  std::string_view finish_as;
  std::string_view reason;  // from api::reason: why the job finishes, is suspended or is held
  std::string message;
  std::optional<WallTime> ended;    // for Complete: when the training ended
  FailureDecision failures;         // for kRun
  GangStart gang;                   // for kRun
  RemovalDecision removal;          // for kDelete
  std::optional<Seconds> deadline;  // time until a rule with a time limit may apply
};

// Whether the job would be this installation's, but another one has claimed it.
[[nodiscard]] bool IsClaimedByAnother(const Observed& observed);

[[nodiscard]] Decision Decide(const Observed& observed, const PodGroups& groups, const KueueState& kueue);

}  // namespace lockstep::reconcile
