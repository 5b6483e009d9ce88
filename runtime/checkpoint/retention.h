#pragma once
// Which checkpoints stay, and the removal of the others and of what broken saves left. Rank 0 calls it after
// each manifest, from the thread that stores. What cannot be removed is logged, and tried again after the
// next.

#include <cstdint>
#include <optional>
#include <set>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// `newest` is the step whose manifest was just written; higher ones stay untouched. The next two are
// spec.checkpoint.keepLast and keepEverySteps. `in_doubt` has the steps whose manifest the store may have
// taken without saying so: it has been seen to come after the next one. Those without one are left alone this
// once, and no longer in doubt.
void RemoveWhatIsNotKept(ObjectStore& store, int64_t newest, int keep_last, std::optional<int64_t> keep_every,
                         std::set<int64_t>& in_doubt);

}  // namespace lockstep::checkpoint
