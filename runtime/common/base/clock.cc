#include "runtime/common/base/clock.h"

namespace lockstep {

WallTime SystemClock::Now() const { return std::chrono::system_clock::now(); }
SteadyTime SystemClock::Steady() const { return std::chrono::steady_clock::now(); }

}  // namespace lockstep
