#pragma once
// Rounds that a rank breaks one after the other, without a step between: when it asks for the next one, and
// when it gives up. Pure.

#include <algorithm>
#include <optional>

#include "runtime/common/base/clock.h"

namespace lockstep::train {

class BrokenRounds {
 public:
  // How long to wait before the next round; nothing once the process is taken for the cause. The first ones
  // cost no time: a failure is often seen twice. Then 100 ms, doubling to 5 s.
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
