#pragma once
// `lockstep run`: a job without Kubernetes, on one machine or several. Hosts the rendezvous in-process (the
// same code as in the operator), starts one `lockstep worker` process per replica, replaces one that dies,
// and shows the progress: on a terminal a bar per epoch, else a line at intervals. With several machines each
// is one replica: machine 0 hosts the rendezvous and decides for all, and the others join it (joined_run.h).

#include <optional>
#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/launch/machines.h"

namespace lockstep::launch {

struct LocalRunOptions {
  api::TrainingJob job;      // validated
  std::string folder;        // worker logs, config and, by default, checkpoints
  std::string program;       // path of `lockstep`, started as `lockstep worker`
  Machines machines{};       // count 1: all replicas run on this one
  bool prefix_ranks = true;  // prefix the lines of a program with several ranks
};

// Blocks until the job is complete, failed or interrupted; returns the exit code (protocol/exit_codes.h).
[[nodiscard]] int RunLocally(const LocalRunOptions& options);

}  // namespace lockstep::launch
