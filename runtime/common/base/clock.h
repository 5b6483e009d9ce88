#pragma once
// Time as a parameter. Wall time is for people and for the API server; every wait and age uses steady time.
// SystemClock may be used from any thread; tests pass tests/support/fake_clock.h.

#include <chrono>

namespace lockstep {

using WallTime = std::chrono::system_clock::time_point;
using SteadyTime = std::chrono::steady_clock::time_point;
using Seconds = std::chrono::duration<double>;
using Milliseconds = std::chrono::milliseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual WallTime Now() const = 0;
  [[nodiscard]] virtual SteadyTime Steady() const = 0;
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] WallTime Now() const override;
  [[nodiscard]] SteadyTime Steady() const override;
};

}  // namespace lockstep
