#pragma once
// The rank of a user's program (`lockstep program`, started by `lockstep worker`): speaks lockstep-rank's
// protocol with the supervisor (protocol/rank_control.h) and runs the command in each round, with torchrun's
// environment. program_life.h makes the decisions; this executes them.

#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

struct ProgramOptions {
  protocol::WorkerConfig config;
  std::vector<std::string> command;  // the program is searched in PATH
  Fd control;                        // this rank's end of the socket
};

// Blocks until the process should end; returns its exit code. BlockSignals() must have been called.
[[nodiscard]] int RunProgramRank(ProgramOptions options);

}  // namespace lockstep::launch
