#pragma once
// How long to wait after the n-th failure in a row. Pure; the random part is a parameter.

#include <chrono>

namespace lockstep::kube {

struct BackoffPolicy {
  std::chrono::milliseconds base{200};
  std::chrono::milliseconds cap{30'000};
};

// base · 2^(failures-1), at most cap, of which the upper half is spread by `random` in [0, 1): a fleet that
// lost the API server together does not come back together. No failures: no delay.
[[nodiscard]] std::chrono::milliseconds BackoffDelay(const BackoffPolicy& policy, int failures,
                                                     double random);

// Uniform in [0, 1), from a generator of the calling thread.
[[nodiscard]] double RandomUnit();

}  // namespace lockstep::kube
