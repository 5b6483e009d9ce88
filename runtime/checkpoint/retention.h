#pragma once
// Decides which checkpoints are kept, and removes the others and what interrupted saves left: objects and
// unfinished uploads. Rank 0 calls it after each save, from the thread that stores. What cannot be removed is
// logged and tried again after the next save. If the store refuses to abort uploads, that is logged once and
// not tried again.

#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

struct Kept {
  int64_t newest = 0;  // the step whose manifest was just written; higher steps are not touched
  int64_t round = 0;   // that wrote the newest checkpoint
  int last = 1;        // spec.checkpoint.keepLast
  std::optional<int64_t> every_steps;
};

// A save of several ranks that will never become a checkpoint. Another rank may still store its shard.
struct LostSave {
  int64_t step = 0;
  ShardSet shards;
};

// What is remembered from one save of a process to its next.
struct RetentionMemory {
  // Steps whose manifest the store may have accepted without confirming it; manifests have been observed to
  // appear after the next one was written. A step without a manifest is kept once more, and is then no longer
  // in doubt.
  std::set<int64_t> in_doubt;
  bool aborts_uploads = true;  // until the store refuses to
  // Lost saves since the newest checkpoint of this process, and those of the same step that it has replaced.
  std::vector<LostSave> lost;
  std::optional<LostSave> newest;  // the newest checkpoint of this process
};

// Called after a manifest was written.
void RemoveWhatIsNotKept(ObjectStore& store, const Kept& kept, RetentionMemory& memory);
// Called after a failed save, and after one that repeats a step: removes only the shards and uploads of this process's lost saves, because
// another process may be about to complete other folders without a manifest. Returns early if `stop` is
// requested.
void RemoveLostSaves(ObjectStore& store, RetentionMemory& memory, const std::stop_token& stop);

}  // namespace lockstep::checkpoint
