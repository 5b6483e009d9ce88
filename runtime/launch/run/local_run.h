#pragma once
// `lockstep run` on one machine, or on machine 0 of several: a job without Kubernetes. Hosts the rendezvous
// in-process (the same code as in the operator), starts one `lockstep worker` process per replica, replaces
// one that dies, and shows the progress: on a terminal a bar per epoch, else a line at intervals. With
// several machines each is one replica: machine 0 hosts the rendezvous and decides for all, and the others
// join it (joined_run.h).

#include "runtime/launch/run/run_options.h"

namespace lockstep::launch {

// Blocks until the job is complete, failed or interrupted; returns the exit code (protocol/exit_codes.h).
[[nodiscard]] int RunLocally(const RunOptions& options);

}  // namespace lockstep::launch
