#pragma once
// `lockstep run`: a job on one machine without Kubernetes. Hosts the rendezvous in-process (the code the
// operator hosts), starts one `lockstep worker` process per replica, replaces one that dies, and shows the
// progress: on a terminal a bar for each epoch, else a line from time to time.

#include <string>

#include "runtime/common/api/training_job.h"

namespace lockstep::launch {

struct LocalRunOptions {
  api::TrainingJob job;  // validated
  std::string folder;    // worker logs, config and, by default, checkpoints
  std::string program;   // path of `lockstep`, started as `lockstep worker`
};

// Blocks until the job is complete, failed or interrupted; returns the exit code (protocol/exit_codes.h).
[[nodiscard]] int RunLocally(const LocalRunOptions& options);

}  // namespace lockstep::launch
