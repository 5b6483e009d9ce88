#pragma once
// Reports whether a key is new, so that a log has one line per cause however often it recurs. The number of new
// keys per hour is limited, so that external input cannot fill the log or the memory. Pure; not synchronised.

#include <chrono>
#include <set>
#include <string>

#include "runtime/common/base/clock.h"

namespace lockstep {

class OncePerKey {
 public:
  // False for a known key, and for new keys once the limit of the hour is reached.
  [[nodiscard]] bool IsFirst(const std::string& key, SteadyTime now) {
    if (keys_.size() >= kMostKeys && now - begun_ >= std::chrono::hours(1)) keys_.clear();
    if (keys_.empty()) begun_ = now;
    return keys_.size() < kMostKeys && keys_.insert(key).second;
  }

 private:
  static constexpr std::size_t kMostKeys = 1000;

  std::set<std::string> keys_;
  SteadyTime begun_{};
};

}  // namespace lockstep
