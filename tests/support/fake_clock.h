#pragma once
// Time that moves only when the test says so. Any thread.

#include <mutex>

#include "runtime/common/base/clock.h"

namespace lockstep::testing {

class FakeClock final : public Clock {
 public:
  [[nodiscard]] WallTime Now() const override {
    const std::lock_guard lock(mutex_);
    return wall_;
  }
  [[nodiscard]] SteadyTime Steady() const override {
    const std::lock_guard lock(mutex_);
    return steady_;
  }
  void Advance(Milliseconds time) {
    const std::lock_guard lock(mutex_);
    wall_ += time;
    steady_ += time;
  }

 private:
  mutable std::mutex mutex_;
  WallTime wall_{std::chrono::seconds(1'767'225'600)};  // 2026-01-01T00:00:00Z
  SteadyTime steady_{std::chrono::hours(1)};
};

}  // namespace lockstep::testing
