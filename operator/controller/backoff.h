#pragma once
// Counts the consecutive failures of each key and derives the delay: 5 ms · 2^n, at most one minute.
// controller-runtime uses the same formula with a higher cap; here a job should not wait a quarter of an hour
// after its quota was raised. Pure; not synchronised.

#include <chrono>
#include <string>
#include <unordered_map>

namespace lockstep::controller {

class KeyBackoff {
 public:
  explicit KeyBackoff(std::chrono::milliseconds base = std::chrono::milliseconds(5),
                      std::chrono::milliseconds cap = std::chrono::minutes(1))
      : base_(base), cap_(cap) {}

  // Counts one more failure.
  [[nodiscard]] std::chrono::milliseconds Next(const std::string& key);
  void Forget(const std::string& key) { failures_.erase(key); }
  [[nodiscard]] int failures(const std::string& key) const;

 private:
  const std::chrono::milliseconds base_;
  const std::chrono::milliseconds cap_;
  std::unordered_map<std::string, int> failures_;
};

}  // namespace lockstep::controller
