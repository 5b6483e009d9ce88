#pragma once
// `lockstep run` on a machine other than machine 0: one worker in the rendezvous that machine 0 hosts.
// Machine 0 reports when the job has ended.

#include "runtime/launch/run/run_options.h"

namespace lockstep::launch {

// Blocks until the job has ended for this machine. Returns the job's exit code (protocol/exit_codes.h), 143
// if only this machine was asked to stop, 5 if machine 0 cannot be reached.
[[nodiscard]] int RunJoined(const RunOptions& options);

}  // namespace lockstep::launch
