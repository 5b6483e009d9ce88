#pragma once
// Removes everything that one job stored below a URI, and nothing else: `lockstep checkpoint rm --all-of-job`
// calls it, by hand or for spec.checkpoint.deleteWithJob. One thread. After an interruption, another call
// removes the rest.

#include <string>
#include <vector>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

struct JobRemoval {
  int checkpoints = 0;
  int objects = 0;                // of checkpoints and others
  std::vector<std::string> left;  // objects that may belong to the job, and why they were not removed
};

// A checkpoint belongs to the job if its manifest says so. Objects without an owner (interrupted saves, the
// history, probes) are removed only if no other job stores below the URI. The job's marker is removed last.
[[nodiscard]] Result<JobRemoval> RemoveAllOfJob(ObjectStore& store, const std::string& uid);

// Whether the job wrote its marker within kLease before `now`: it runs, or was killed a moment ago.
[[nodiscard]] Result<bool> SeemsToRun(ObjectStore& store, const std::string& uid, WallTime now);

}  // namespace lockstep::checkpoint
