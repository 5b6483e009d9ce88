#pragma once
// The test set, each sample once over all ranks; sums are reduced, never means. Step thread.

#include <functional>

#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;            // mean over the test set but for its corrupt records
  double accuracy = 0;        // share of right answers, of those, too
  int64_t corrupt = 0;        // records that were skipped
  int64_t local_corrupt = 0;  // by this rank
  bool complete = true;       // false: a rank had to leave the round before its share was done
};

// By spec.evaluation, which must be there. `leave` is asked between batches: where it is true on any rank,
// all come back early. kAborted: the round broke.
[[nodiscard]] Result<Evaluation> Evaluate(const api::TrainingSpec& spec, TrainingState& state,
                                          const data::Dataset& test, comm::Communicator& communicator,
                                          const std::function<bool()>& leave);

}  // namespace lockstep::train
