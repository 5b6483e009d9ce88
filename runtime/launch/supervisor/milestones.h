#pragma once
// The lines in a worker's log about what its ranks reach. Any thread.

#include "runtime/launch/supervisor/supervision.h"

namespace lockstep::launch {

void LogMilestone(const RankMessage& event);

}  // namespace lockstep::launch
