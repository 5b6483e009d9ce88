#pragma once
// `lockstep run` on one machine, or on machine 0 of several: a job without Kubernetes. Hosts the rendezvous
// in-process (the same code as in the operator), starts one `lockstep worker` process per replica, replaces
// one that dies, and shows the progress: on a terminal a bar per epoch, else a line at intervals. With
// several machines each is one replica: machine 0 hosts the rendezvous and decides for all, and the others
// join it (joined_run.h).

#include <functional>

#include "runtime/common/rendezvous/view.h"
#include "runtime/launch/run/run_options.h"
#include "runtime/launch/run/run_policy.h"

namespace lockstep::launch {

// Blocks until the job is complete, failed or interrupted; returns the exit code (protocol/exit_codes.h).
[[nodiscard]] int RunLocally(const RunOptions& options);

using IsEnough = std::function<bool(const rendezvous::RendezvousView&)>;
// The same on one machine, but prints nothing, and ends the job successfully when `is_enough` returns true for
// what is known of it. An error: the job could not be started.
[[nodiscard]] Result<RunEnd> RunUntil(const RunOptions& options, const IsEnough& is_enough);

}  // namespace lockstep::launch
