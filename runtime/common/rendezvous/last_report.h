#pragma once
// What the last report of a pod adds to a view: of a job that ended while no service took its heartbeats. Pure.

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// `ended`: when the pod's container ended. What the view knows already stays as it is.
void TakeLastReport(const protocol::Heartbeat& report, WallTime ended, RendezvousView& view);

}  // namespace lockstep::rendezvous
