#pragma once
// Why pods do not start, in words that name the field to mend. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct WaitingReason {
  std::string_view reason;  // of api::reason
  std::string message;
  bool needs_people = true;  // waiting alone will not help
};

// The most telling one over all pods, in their order by name; nullopt where every pod starts as it should.
[[nodiscard]] std::optional<WaitingReason> FindWaitingReason(const Observed& observed);

// Pods that a full round needs and that have not started: they wait for a node, quota, an image, or are to be
// made. In words for their peers, which are not to be blamed for it; empty: there are none.
[[nodiscard]] std::string PodsNotStarted(const Observed& observed);

// Until an elastic job settles for fewer replicas because a pod of it found no node for
// elasticPolicy.shrinkAfterSeconds; not above 0: it has. Its members never waited for it: they train on, the
// pod goes on asking for room, and the job grows when it gets some. nullopt: every pod has a node.
[[nodiscard]] std::optional<Seconds> UntilShrunk(const Observed& observed);

}  // namespace lockstep::reconcile
