#pragma once
// `lockstep run`: a job without Kubernetes, on this machine or on several. Hosts the rendezvous in-process
// (the code the operator hosts), starts one `lockstep worker` process per replica, replaces one that dies,
// and shows the progress: on a terminal a bar for each epoch, else a line from time to time. Of several
// machines each is one replica: machine 0 does so and judges for all, and the others join it (joined_run.h).

#include <optional>
#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/launch/machines.h"

namespace lockstep::launch {

struct LocalRunOptions {
  api::TrainingJob job;      // validated
  std::string folder;        // worker logs, config and, by default, checkpoints
  std::string program;       // path of `lockstep`, started as `lockstep worker`
  Machines machines{};       // count 1: all replicas are on this one
  bool prefix_ranks = true;  // before each line of a program that has several
};

// Blocks until the job is complete, failed or interrupted; returns the exit code (protocol/exit_codes.h).
[[nodiscard]] int RunLocally(const LocalRunOptions& options);

}  // namespace lockstep::launch
