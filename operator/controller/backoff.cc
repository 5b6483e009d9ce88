#include "operator/controller/backoff.h"

#include <algorithm>

namespace lockstep::controller {

std::chrono::milliseconds KeyBackoff::Next(const std::string& key) {
  const int before = failures_[key]++;
  std::chrono::milliseconds delay = base_;
  for (int i = 0; i < before && delay < cap_; ++i) delay *= 2;
  return std::min(delay, cap_);
}

int KeyBackoff::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace lockstep::controller
