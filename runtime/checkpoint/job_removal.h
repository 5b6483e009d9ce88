#pragma once
// The removal of all that one job stored below a URI, and of nothing else: `lockstep checkpoint rm
// --all-of-job` calls it, by hand or for spec.checkpoint.deleteWithJob. One thread. Doing it again after it
// was broken off does the rest.

#include <string>
#include <vector>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

struct JobRemoval {
  int checkpoints = 0;
  int objects = 0;                // of checkpoints and besides
  std::vector<std::string> left;  // what may be the job's, and why it stays
};

// A checkpoint is the job's where its manifest says so. What says of nobody whose it is (saves that were
// broken off, the history, probes) goes only where nothing below the URI is another's. The marker goes last.
[[nodiscard]] Result<JobRemoval> RemoveAllOfJob(ObjectStore& store, const std::string& uid);

// Whether the job put its marker within kLease before `now`: it runs, or was killed a moment ago.
[[nodiscard]] Result<bool> SeemsToRun(ObjectStore& store, const std::string& uid, WallTime now);

}  // namespace lockstep::checkpoint
