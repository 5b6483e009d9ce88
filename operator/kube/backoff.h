#pragma once
// How long to wait after the n-th consecutive failure (pure; the random part is a parameter), and the wait.

#include <chrono>
#include <functional>
#include <stop_token>

namespace lockstep::kube {

struct BackoffPolicy {
  std::chrono::milliseconds base{200};
  std::chrono::milliseconds cap{30'000};
};

// PauseFor, or what a test does instead of waiting. False if `stop` was requested before the time had passed.
using Pause = std::function<bool(std::chrono::milliseconds time, const std::stop_token& stop)>;

// base · 2^(failures-1), at most cap. The upper half of the delay is multiplied by `random` in [0, 1), so
// that clients that lost the API server at the same time do not return at the same time. Zero without
// failures.
[[nodiscard]] std::chrono::milliseconds BackoffDelay(const BackoffPolicy& policy, int failures,
                                                     double random);

// Uniform in [0, 1), from a generator of the calling thread.
[[nodiscard]] double RandomUnit();

}  // namespace lockstep::kube
