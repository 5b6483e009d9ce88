#pragma once
// How a job scales, as `lockstep scaling` and `kubectl lockstep scaling` show it. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/command_line/text.h"

namespace lockstep::cli {

// What the reader can do; it depends on where the job was measured.
struct ScalingHints {
  std::string nothing_measured;  // why no size was measured
  std::string measure_more;      // a sentence on how to measure another size; may be empty
};

// Without an exponent for large numbers.
[[nodiscard]] std::string SpeedText(double samples_per_second);
// A table of the measured sizes, and a recommendation.
[[nodiscard]] command_line::Lines ScalingText(const std::vector<api::ScalingRecord>& records,
                                              const ScalingHints& hints, WallTime now);
// The same for programs.
[[nodiscard]] Json ScalingToJson(const std::vector<api::ScalingRecord>& records, const ScalingHints& hints);

}  // namespace lockstep::cli
