#pragma once
// Which checkpoints stay, and the removal of the others and of what broken saves left: objects and unfinished
// uploads. Rank 0 calls it after each save, from the thread that stores. What cannot be removed is logged, and
// tried again after the next; that the store refuses to abort uploads is logged once, and then left.

#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

struct Kept {
  int64_t newest = 0;  // the step whose manifest was just written; higher ones stay untouched
  int64_t round = 0;   // that wrote it
  int last = 1;        // spec.checkpoint.keepLast
  std::optional<int64_t> every_steps;
};

// A save of several ranks that became no checkpoint and never will. Another rank may yet store its shard.
struct LostSave {
  int64_t step = 0;
  ShardSet shards;
};

// From one save of a process to its next.
struct RetentionMemory {
  // Steps whose manifest the store may have taken without saying so: it has been seen to come after the next
  // one. Those without one are left alone once, and then no longer in doubt.
  std::set<int64_t> in_doubt;
  bool aborts_uploads = true;  // until the store has refused to
  // Those since the newest checkpoint of this process.
  std::vector<LostSave> lost;
};

// After a manifest.
void RemoveWhatIsNotKept(ObjectStore& store, const Kept& kept, RetentionMemory& memory);
// After a save that failed: only the shards and uploads of lost saves of this process, as another process may
// be about to complete what else has no manifest. Ends early where `stop` is requested.
void RemoveLostSaves(ObjectStore& store, RetentionMemory& memory, const std::stop_token& stop);

}  // namespace lockstep::checkpoint
