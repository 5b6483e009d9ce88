#pragma once
// Failures in a row of each key, and the delay they ask for: 5 ms · 2^n up to a minute, as controller-runtime
// does with a lower cap: a job whose quota was raised should not wait a quarter of an hour. Pure; not
// synchronised.

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
