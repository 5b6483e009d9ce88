#pragma once
// How fast each rank of a round computes, for `training.balance: Speed`. Step thread.

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/step/phase_clock.h"

namespace lockstep::train {

// Measures how fast this rank computes, excluding the time it waits for others.
class SpeedMeter {
 public:
  explicit SpeedMeter(const PhaseClock& phases) : phases_(phases) {}

  void Committed(int64_t steps, int64_t samples);
  // Samples per 1000 s over the steps since the last measurement, or the last result if there were too few.
  // 0: not known yet.
  [[nodiscard]] int64_t Measure();

 private:
  const PhaseClock& phases_;
  int64_t steps_ = 0;
  int64_t samples_ = 0;
  double measured_until_seconds_ = 0;
  int64_t newest_ = 0;
};

// Exchanges what every rank measured. A rank that has no measurement gets the median of the others. The
// result is the same on each rank.
[[nodiscard]] Result<std::vector<double>> SpeedsOfRanks(comm::Communicator& communicator, int64_t mine);
// The same without the exchange. Pure.
[[nodiscard]] std::vector<double> SpeedsFrom(const std::vector<int64_t>& measured);

}  // namespace lockstep::train
