#pragma once
// How fast each rank of a round computes, for `training.balance: Speed`. Step thread.

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/phase_clock.h"

namespace lockstep::train {

// Of this rank, without what it waits for others.
class SpeedMeter {
 public:
  explicit SpeedMeter(const PhaseClock& phases) : phases_(phases) {}

  void Committed(int64_t steps, int64_t samples);
  // Samples in 1000 s, over the steps since it was last measured; over the ones before where those are few.
  // 0: not known yet.
  [[nodiscard]] int64_t Measure();

 private:
  const PhaseClock& phases_;
  int64_t steps_ = 0;
  int64_t samples_ = 0;
  double measured_until_seconds_ = 0;
  int64_t newest_ = 0;
};

// What every rank of the round measured; a rank that does not know takes the median of the others'. The same
// numbers on each rank.
[[nodiscard]] Result<std::vector<double>> SpeedsOfRanks(comm::Communicator& communicator, int64_t mine);
// The same without the exchange. Pure.
[[nodiscard]] std::vector<double> SpeedsFrom(const std::vector<int64_t>& measured);

}  // namespace lockstep::train
