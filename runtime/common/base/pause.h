#pragma once
// A wait that a stop ends early. Any thread.

#include <stop_token>

#include "runtime/common/base/clock.h"

namespace lockstep {

// False where `stop` was requested before the time was over.
bool PauseFor(Milliseconds time, const std::stop_token& stop);

}  // namespace lockstep
