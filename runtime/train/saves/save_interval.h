#pragma once
// The time between two checkpoints for spec.checkpoint.interval Auto. A save costs the time for which it
// blocks training; a loss of all ranks costs half an interval on average. With a cost of C seconds per save
// and M seconds between failures, the total cost is lowest at sqrt(2 C M) (Young 1974). Storing a checkpoint
// does not block training, but the next save must not begin before it is complete. Pure.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>

namespace lockstep::train {

// At least the time it takes to store a checkpoint, and at most the time between failures.
[[nodiscard]] inline double BestInterval(double cost_seconds, double store_seconds, double between_failures) {
  return std::max(store_seconds, std::min(between_failures, std::sqrt(2 * cost_seconds * between_failures)));
}

// Derives the interval from this process's newest saves. One thread.
class SaveInterval {
 public:
  explicit SaveInterval(double between_failures_seconds) : between_failures_(between_failures_seconds) {}

  // `cost` is the time for which the save blocked training; `store` is the time from its beginning until it
  // was stored.
  void Saved(double cost, double store) {
    saves_.push_back({cost, store});
    if (saves_.size() > kRemembered) saves_.pop_front();
  }

  [[nodiscard]] double seconds() const {
    if (saves_.empty()) return std::min(kBeforeTheFirst, between_failures_);
    double cost = 0;
    double store = 0;
    for (const Save& save : saves_) {
      cost += save.cost / static_cast<double>(saves_.size());
      store = std::max(store, save.store);
    }
    return BestInterval(cost, store, between_failures_);
  }

  // Whether the interval changed by at least a quarter since the last call that returned true, so that it is
  // worth logging.
  [[nodiscard]] bool TakeChange() {
    const double now = seconds();
    if (now < logged_ * kWorthLogging && logged_ < now * kWorthLogging) return false;
    logged_ = now;
    return true;
  }

 private:
  struct Save {
    double cost = 0;
    double store = 0;
  };
  static constexpr std::size_t kRemembered = 8;
  // Seconds. Short, so that the first save soon shows what a save costs.
  static constexpr double kBeforeTheFirst = 60;
  static constexpr double kWorthLogging = 1.25;

  double between_failures_;
  std::deque<Save> saves_;
  double logged_ = 0;
};

}  // namespace lockstep::train
