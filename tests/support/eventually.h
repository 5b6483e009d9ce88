#pragma once
// Waits for what other threads bring about, up to a deadline: the only kind of waiting that tests do. The
// deadline ends a hang; a machine that is busy with other things may need long for what takes a moment.

#include <chrono>
#include <thread>

namespace lockstep::testing {

template <typename Condition>
[[nodiscard]] bool Eventually(Condition condition,
                              std::chrono::milliseconds limit = std::chrono::seconds(120)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::testing
