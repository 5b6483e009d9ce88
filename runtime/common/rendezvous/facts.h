#pragma once
// Takes what a member reports about its job into the view, other than how far the training is: from a
// heartbeat and from the last report of a pod alike. Pure.

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// Members report repeatedly, and more than one may know the same. Returns true if there is news that is worth
// a reconcile at once.
bool TakeFacts(const protocol::Heartbeat& report, WallTime received, RendezvousView& view);

// When the step of the report was completed; epoch: it has none.
[[nodiscard]] WallTime StepTimeOf(const protocol::Heartbeat& report, WallTime received);

}  // namespace lockstep::rendezvous
