#pragma once
// `lockstep worker`: PID 1 of a worker pod. Starts the rank processes, keeps them in the rendezvous, restarts
// one that dies, and serves /metrics for all of them. supervision.h makes the decisions; this executes them.

#include <string>
#include <vector>

#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/client.h"
#include "runtime/launch/supervisor/program_output.h"

namespace lockstep::launch {

struct SupervisorOptions {
  protocol::WorkerConfig config;
  protocol::Member member;
  std::string address;  // where peers reach this pod
  // The command that starts a rank: lockstep-rank's path, or `lockstep program` for a user's program.
  std::vector<std::string> rank_command;
  bool is_program = false;                // it is a user's program
  ProgramOutputSender* output = nullptr;  // in addition to the log; null in pods
  // The file in which the operator finds why the worker failed, or its last report (protocol/last_report.h).
  std::string termination_log;
};

// Blocks until the pod's work is over; returns the process's exit code (protocol/exit_codes.h).
// BlockSignals() must have been called at the start of main.
[[nodiscard]] int RunSupervisor(const SupervisorOptions& options, http::HttpTransport& transport);

}  // namespace lockstep::launch
