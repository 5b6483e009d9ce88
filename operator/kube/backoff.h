#pragma once
// How long to wait after the n-th consecutive failure. Pure; the random part is a parameter.

#include <chrono>

namespace lockstep::kube {

struct BackoffPolicy {
  std::chrono::milliseconds base{200};
  std::chrono::milliseconds cap{30'000};
};

// base · 2^(failures-1), at most cap. The upper half of the delay is multiplied by `random` in [0, 1), so
// that clients that lost the API server at the same time do not return at the same time. Zero without
// failures.
[[nodiscard]] std::chrono::milliseconds BackoffDelay(const BackoffPolicy& policy, int failures,
                                                     double random);

// Uniform in [0, 1), from a generator of the calling thread.
[[nodiscard]] double RandomUnit();

}  // namespace lockstep::kube
