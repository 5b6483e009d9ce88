#pragma once
// Decides how long a rank waits for the next round after consecutive broken rounds without a step between
// them, and when it gives up. Pure.

#include <algorithm>
#include <optional>

#include "runtime/common/base/clock.h"

namespace lockstep::train {

class BrokenRounds {
 public:
  // Returns how long to wait before the next round, or nothing once this process is considered to be the
  // cause. The first two retries are immediate, because one failure is often seen twice. The pause then
  // starts at 100 ms and doubles up to 5 s.
  [[nodiscard]] std::optional<Milliseconds> Broke() {
    if (++count_ > kMost) return std::nullopt;
    if (count_ <= kAtOnce) return Milliseconds(0);
    return std::min(kFirstPause * (1 << std::min(count_ - kAtOnce - 1, 10)), kLongestPause);
  }
  void MadeStep() { count_ = 0; }
  [[nodiscard]] int count() const { return count_; }

 private:
  static constexpr int kAtOnce = 2;
  static constexpr int kMost = 20;
  static constexpr Milliseconds kFirstPause{100};
  static constexpr Milliseconds kLongestPause{5'000};

  int count_ = 0;
};

}  // namespace lockstep::train
