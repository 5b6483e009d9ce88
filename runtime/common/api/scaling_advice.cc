#include "runtime/common/api/scaling_advice.h"

#include <algorithm>

namespace lockstep::api {
namespace {

// Seconds of all ranks for one sample.
struct Cost {
  double communication = 0;
  double data = 0;
  double compute = 0;
};

Cost CostOf(const ScalingRecord& record) {
  const double seconds = record.world_size / record.samples_per_second;
  return {.communication = seconds * record.communication,
          .data = seconds * record.data,
          .compute = seconds * (1 - record.communication - record.data)};
}

Shortfall ExplanationOf(const MeasuredSize& size, const ScalingRecord& smallest) {
  const Cost before = CostOf(smallest);
  const Cost cost = CostOf(size.record);
  const double communication = cost.communication - before.communication;
  const double data = cost.data - before.data;
  const double compute = cost.compute - before.compute;
  Shortfall shortfall{.size = size, .limit = ScalingLimit::kCompute};
  if (before.compute > 0) shortfall.compute_growth = cost.compute / before.compute;
  if (communication >= std::max(data, compute)) {
    shortfall.limit = ScalingLimit::kCommunication;
  } else if (data >= compute) {
    shortfall.limit = ScalingLimit::kData;
  }
  return shortfall;
}

}  // namespace

ScalingRecord RecordOf(const rendezvous::MeasuredSteps& steps, int world_size) {
  return {.world_size = world_size,
          .samples_per_second = static_cast<double>(steps.samples) / steps.seconds,
          .communication = steps.communication_seconds / steps.seconds,
          .data = steps.data_seconds / steps.seconds,
          .steps = steps.steps,
          .time = {}};
}

ScalingAdvice AdviceFrom(std::vector<ScalingRecord> records) {
  std::erase_if(records, [](const ScalingRecord& record) {
    return record.world_size <= 0 || record.samples_per_second <= 0;
  });
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.world_size < b.world_size; });
  ScalingAdvice advice;
  for (const ScalingRecord& record : records) {
    const ScalingRecord& smallest = records.front();
    const double efficiency =
        record.samples_per_second / record.world_size / (smallest.samples_per_second / smallest.world_size);
    advice.sizes.push_back({record, efficiency});
    if (efficiency >= kGoodEfficiency) advice.recommended = record.world_size;
  }
  const auto larger = std::find_if(advice.sizes.begin(), advice.sizes.end(), [&](const MeasuredSize& size) {
    return size.record.world_size > advice.recommended;
  });
  if (larger != advice.sizes.end()) advice.shortfall = ExplanationOf(*larger, records.front());
  return advice;
}

}  // namespace lockstep::api
