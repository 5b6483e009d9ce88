#pragma once
// The list of ended rounds of one job: which members lost their place, how the round was repaired, and what
// it cost. Pure: JobEntry calls these functions in the order of events and keeps the list in its view.

#include <vector>

#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// Records the newest ending, or updates its record.
void RecordEnding(const Ending& ending, std::vector<RoundChange>& changes);
// Records that a new round is running. `is_full`: no further member will get a place in it.
void RecordClosing(const Ending& ending, const ClosedRound& closed, bool is_full,
                   std::vector<RoundChange>& changes);
// Records a repair that the members made by themselves. False if nothing changed.
bool RecordRepair(const protocol::Member& member, const protocol::Repair& repair,
                  std::vector<RoundChange>& changes);

}  // namespace lockstep::rendezvous
