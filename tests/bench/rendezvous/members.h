#pragma once
// The members' side of the bench: what their supervisors would say, over TLS connections that one thread
// serves.

#include "tests/bench/rendezvous/scoreboard.h"

namespace lockstep::bench {

// Connections that `members` members open.
[[nodiscard]] int ConnectionsOf(int members);

// Joins, watches, beats and joins again until the scoreboard says that it is over.
void RunMembers(const Plan& plan, Scoreboard& board);

}  // namespace lockstep::bench
