#include "operator/kube/backoff.h"

#include <algorithm>
#include <random>

namespace lockstep::kube {

std::chrono::milliseconds BackoffDelay(const BackoffPolicy& policy, int failures, double random) {
  if (failures <= 0) return std::chrono::milliseconds(0);
  std::chrono::milliseconds delay = policy.base;
  for (int i = 1; i < failures && delay < policy.cap; ++i) delay *= 2;
  delay = std::min(delay, policy.cap);
  return delay / 2 +
         std::chrono::milliseconds(static_cast<int64_t>(static_cast<double>(delay.count()) / 2 * random));
}

double RandomUnit() {
  thread_local std::minstd_rand generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

}  // namespace lockstep::kube
