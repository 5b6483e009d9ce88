#pragma once
// How long to train between two checkpoints where spec.checkpoint.interval is Auto. A save costs the time for
// which it holds training up; a loss of all ranks costs half an interval on average. With C seconds a save
// and M seconds between losses both together are least at sqrt(2 C M) (Young 1974). Training goes on while a
// checkpoint is stored, so that costs nothing, but the next one must not begin before. Pure.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>

namespace lockstep::train {

// Never more often than a checkpoint can be stored, never longer than what is lost anyway.
[[nodiscard]] inline double BestInterval(double cost_seconds, double store_seconds, double between_failures) {
  return std::max(store_seconds, std::min(between_failures, std::sqrt(2 * cost_seconds * between_failures)));
}

// From what this process's newest saves took. One thread.
class SaveInterval {
 public:
  explicit SaveInterval(double between_failures_seconds) : between_failures_(between_failures_seconds) {}

  // `cost`: for how long it held training up; `store`: from its begin until it was stored.
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

  // Whether it is worth a line: once for each change by a quarter.
  [[nodiscard]] bool TakeChange() {
    const double now = seconds();
    if (now < told_ * kWorthTelling && told_ < now * kWorthTelling) return false;
    told_ = now;
    return true;
  }

 private:
  struct Save {
    double cost = 0;
    double store = 0;
  };
  static constexpr std::size_t kRemembered = 8;
  // Seconds: a first save soon tells what one costs.
  static constexpr double kBeforeTheFirst = 60;
  static constexpr double kWorthTelling = 1.25;

  double between_failures_;
  std::deque<Save> saves_;
  double told_ = 0;
};

}  // namespace lockstep::train
