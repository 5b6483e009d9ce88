#pragma once
// `lockstep run` on a machine other than machine 0: one worker in the rendezvous that machine 0 hosts, and
// the end that machine 0 tells of.

#include "runtime/launch/local_run.h"

namespace lockstep::launch {

// Blocks until the job has ended for this machine; returns the job's exit code (protocol/exit_codes.h), 143
// where this machine alone was asked to stop, 5 where machine 0 is not to be found.
[[nodiscard]] int RunJoined(const LocalRunOptions& options);

}  // namespace lockstep::launch
