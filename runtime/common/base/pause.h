#pragma once
// A wait that a stop request ends early. Any thread.

#include <stop_token>

#include "runtime/common/base/clock.h"

namespace lockstep {

// False if `stop` was requested before the time had passed.
bool PauseFor(Milliseconds time, const std::stop_token& stop);

}  // namespace lockstep
