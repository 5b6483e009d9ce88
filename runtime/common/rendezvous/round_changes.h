#pragma once
// What became of the rounds of one job that ended: who lost a place, how it was mended, what it cost. Pure:
// JobEntry calls these in the order in which things happen, and keeps the list in its view.

#include <vector>

#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// Enters the newest ending, or what has become known of it since.
void RecordEnding(const Ending& ending, std::vector<RoundChange>& changes);
// A new round is running. `is_full`: nobody else will get a place in it.
void RecordClosing(const Ending& ending, const ClosedRound& closed, bool is_full,
                   std::vector<RoundChange>& changes);
// A member says how the members mended a formation by themselves. False: nothing that was not known.
bool RecordRepair(const protocol::Member& member, const protocol::Repair& repair,
                  std::vector<RoundChange>& changes);

}  // namespace lockstep::rendezvous
