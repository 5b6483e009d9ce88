#pragma once
// The results of the evaluations so far that decide whether training continues. Plain values.

#include <cstdint>

namespace lockstep::checkpoint {

struct EvaluationRecord {
  int64_t step = -1;  // of the newest evaluation; -1: none yet
  // Of spec.training.earlyStop.metric; always finite.
  double newest = 0;
  double best = 0;                  // the newest value that was better by earlyStop.minDelta
  int64_t without_improvement = 0;  // evaluations since the best
};

}  // namespace lockstep::checkpoint
