#pragma once
// What the evaluations of a run came to so far, as far as it decides how the run goes on. Plain values.

#include <cstdint>

namespace lockstep::checkpoint {

struct EvaluationRecord {
  int64_t step = -1;  // the newest one that is done; -1: none yet
  // Of spec.training.earlyStop.metric; always finite.
  double newest = 0;
  double best = 0;                  // the newest that was better by earlyStop.minDelta
  int64_t without_improvement = 0;  // evaluations since the best
};

}  // namespace lockstep::checkpoint
