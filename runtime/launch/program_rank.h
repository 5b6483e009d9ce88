#pragma once
// The rank of a program of the user's own (`lockstep program`, started by `lockstep worker`): speaks the
// protocol of lockstep-rank with the supervisor (protocol/rank_control.h) and runs the command in each round,
// with torchrun's environment. Decisions are in program_life.h; this is what carries them out.

#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

struct ProgramOptions {
  protocol::WorkerConfig config;
  std::vector<std::string> command;  // the program is looked up in PATH
  Fd control;                        // this rank's end of the socket
};

// Blocks until the process is to end; returns its exit code. BlockSignals() must have been called.
[[nodiscard]] int RunProgramRank(ProgramOptions options);

}  // namespace lockstep::launch
