#pragma once
// Why pods do not start, with the field to correct. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct WaitingReason {
  std::string_view reason;  // from api::reason
  std::string message;
  bool needs_people = true;  // waiting alone will not help
};

// The most specific reason over all pods in the order of their names; nullopt if every pod starts as
// expected.
[[nodiscard]] std::optional<WaitingReason> FindWaitingReason(const Observed& observed);

// Pods that a full round needs and that have not started: they wait for a node, quota or an image, or are not
// created yet. A text for the members that wait for them, whose join clock is stopped meanwhile; empty: there
// are none.
[[nodiscard]] std::string PodsNotStarted(const Observed& observed);

// Time until an elastic job continues with fewer replicas because a pod found no node for
// elasticPolicy.shrinkAfterSeconds; not above 0: it has passed. The members train meanwhile. The pod remains
// pending, and the job grows when it gets a node. nullopt: every pod has a node.
[[nodiscard]] std::optional<Seconds> UntilShrunk(const Observed& observed);

}  // namespace lockstep::reconcile
