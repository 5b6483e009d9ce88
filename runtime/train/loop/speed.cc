#include "runtime/train/loop/speed.h"

#include <algorithm>
#include <cmath>

#include "runtime/common/protocol/rank_control.h"

namespace lockstep::train {
namespace {

// With fewer steps, a pause of the machine would distort the result.
constexpr int64_t kEnoughSteps = 10;

}  // namespace

void SpeedMeter::Committed(int64_t steps, int64_t samples) {
  steps_ += steps;
  samples_ += samples;
}

int64_t SpeedMeter::Measure() {
  const double until = protocol::ComputeSeconds(phases_.seconds());
  const double seconds = until - measured_until_seconds_;
  if (steps_ < kEnoughSteps || samples_ == 0 || seconds <= 0) return newest_;
  newest_ = std::max<int64_t>(1, std::llround(1000 * static_cast<double>(samples_) / seconds));
  measured_until_seconds_ = until;
  steps_ = 0;
  samples_ = 0;
  return newest_;
}

std::vector<double> SpeedsFrom(const std::vector<int64_t>& measured) {
  std::vector<int64_t> known;
  std::copy_if(measured.begin(), measured.end(), std::back_inserter(known),
               [](int64_t speed) { return speed > 0; });
  if (known.empty()) return std::vector<double>(measured.size(), 1);
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  std::nth_element(known.begin(), middle, known.end());
  std::vector<double> speeds;
  speeds.reserve(measured.size());
  for (const int64_t speed : measured) speeds.push_back(static_cast<double>(speed > 0 ? speed : *middle));
  return speeds;
}

Result<std::vector<double>> SpeedsOfRanks(comm::Communicator& communicator, int64_t mine) {
  const std::vector<int64_t> own = {mine};
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(own));
  std::vector<int64_t> measured;
  measured.reserve(rows.size());
  for (const auto& row : rows) measured.push_back(row.at(0));
  return SpeedsFrom(measured);
}

}  // namespace lockstep::train
