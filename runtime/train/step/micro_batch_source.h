#pragma once
// The micro-batches of a rank as the loader draws them, step after step.

#include <cstdint>
#include <functional>

#include "runtime/data/loader.h"
#include "runtime/train/step/batch_math.h"

namespace lockstep::train {

// Those of the steps from `begin` to before `end`. `share_of` is called by the loader's threads, one at a
// time, perhaps after the round has ended; a share may be empty.
[[nodiscard]] data::Loader::Source MicroBatchSource(std::function<RankShare(int64_t step)> share_of,
                                                    int64_t begin, int64_t end);

}  // namespace lockstep::train
