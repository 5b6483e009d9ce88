#pragma once
// Which number of ranks a job should have, by what was measured. Pure.
//
// The time that all ranks together spend on a sample has three parts: they wait for each other, they wait for
// data, and they compute. With perfect scaling the sum is the same for every size. The part that grew most
// limits the job. Computing takes longer if a rank has so few samples that it does not use its processor well,
// or if ranks share a processor.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::api {

// A measurement of fewer steps varies too much.
inline constexpr int64_t kFewestMeasuredSteps = 10;

// Without its time. `steps` is not empty.
[[nodiscard]] ScalingRecord RecordOf(const rendezvous::MeasuredSteps& steps, int world_size);

inline constexpr double kGoodEfficiency = 0.8;

enum class ScalingLimit { kCommunication, kData, kCompute };

struct MeasuredSize {
  ScalingRecord record;
  double efficiency = 1;  // samples per second and rank, divided by those of the smallest size
};

// A size that is less efficient than kGoodEfficiency.
struct Shortfall {
  MeasuredSize size;
  ScalingLimit limit = ScalingLimit::kCommunication;
  double compute_growth = 1;  // computing a sample takes so many times as long as with the smallest size
};

struct ScalingAdvice {
  std::vector<MeasuredSize> sizes;  // smallest first
  int32_t recommended = 0;  // the largest world size that is efficient enough; 0: nothing was measured
  std::optional<Shortfall> shortfall;  // the next larger size
};

[[nodiscard]] ScalingAdvice AdviceFrom(std::vector<ScalingRecord> records);

}  // namespace lockstep::api
