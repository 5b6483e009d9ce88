#pragma once
// Whether a key comes for the first time, so that a log has one line for each cause however often it repeats.
// The number of keys is limited in each hour: what somebody outside can cause must fill neither the log nor the
// memory. Pure; not synchronised.

#include <chrono>
#include <set>
#include <string>

#include "runtime/common/base/clock.h"

namespace lockstep {

class OncePerKey {
 public:
  // False for a key that came before, and for new ones while the hour's number is used up.
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
