#pragma once
// Adds the last report of a pod to a view, for a job that ended while no service received its heartbeats. Pure.

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// `ended`: when the pod's container ended. Never replaces newer values of the view.
void TakeLastReport(const protocol::Heartbeat& report, WallTime ended, RendezvousView& view);

}  // namespace lockstep::rendezvous
