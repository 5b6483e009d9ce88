#pragma once
// Limits a rate: an average per second, and a burst. Pure; not synchronised.

#include <algorithm>

#include "runtime/common/base/clock.h"

namespace lockstep {

class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // Takes tokens, if necessary in advance. Returns how long to wait until they are available.
  [[nodiscard]] Milliseconds Take(SteadyTime now, double count = 1) {
    if (filled_ != SteadyTime{}) tokens_ += per_second_ * Seconds(now - filled_).count();
    tokens_ = std::min(tokens_, burst_) - count;
    filled_ = now;
    return tokens_ >= 0 ? Milliseconds(0) : std::chrono::ceil<Milliseconds>(Seconds(-tokens_ / per_second_));
  }

 private:
  const double per_second_;
  const double burst_;
  double tokens_;
  SteadyTime filled_{};
};

}  // namespace lockstep
