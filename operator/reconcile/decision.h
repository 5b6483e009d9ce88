#pragma once
// What a job should be doing now, and why: a chain of rules of which the first that applies wins. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/checkpoint_removal.h"
#include "operator/reconcile/failure_policy.h"
#include "operator/reconcile/gang_start.h"
#include "operator/reconcile/observed.h"
#include "operator/reconcile/pods.h"
#include "operator/reconcile/queue.h"

namespace lockstep::reconcile {

enum class Mode {
  kIgnore,    // a job of another controller, or of another installation of this one
  kDelete,    // the object is going away
  kFinished,  // Complete or Failed, now or before
  kSuspend,
  kHold,   // its spec has become invalid: what runs goes on as it is until the spec is mended
  kDrain,  // training has reached its end; the last workers are leaving
  kRun,
};

struct Decision {
  Mode mode = Mode::kRun;
  // Of kFinished, where this pass finishes it: Complete or Failed. Empty: it was before.
  std::string_view finish_as;
  std::string_view reason;  // of api::reason: why it finishes, is suspended, or is held
  std::string message;
  std::optional<WallTime> ended;    // of Complete: when the training did
  FailureDecision failures;         // of kRun
  GangStart gang;                   // of kRun
  RemovalDecision removal;          // of kDelete
  std::optional<Seconds> deadline;  // until the rule that waits for time may apply
};

[[nodiscard]] Decision Decide(const Observed& observed, const PodGroups& groups, const QueueState& queue);

}  // namespace lockstep::reconcile
