#pragma once
// The reports of the machines of one `lockstep run` to machine 0 and its answers: POST with JSON bodies on
// the server of the rendezvous, with the same token. Each report contains the full state, so a report may be
// lost or arrive twice. Pure.

#include <string>
#include <string_view>

#include "runtime/common/base/fields.h"
#include "runtime/common/protocol/message_limits.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

inline constexpr std::string_view kMachinePath = "/v1/machine";

// How a worker process ended.
struct WorkerEnd {
  int exit_code = 0;
  int signal = 0;      // 0: it exited
  std::string reason;  // its termination message
};

enum class WorkerState { kNone, kRuns, kEnded };

struct MachineReport {
  int machine = 0;
  std::string incarnation;  // of the `lockstep run` process
  std::string manifest;     // a hash: all machines must run the same manifest
  WorkerState state = WorkerState::kNone;
  std::string worker;       // uid of the newest worker
  WorkerEnd end;            // valid for kEnded
  bool is_leaving = false;  // asked to stop: do not start another worker
};

enum class Order {
  kRun,   // a worker should run: start one, or another, if none runs
  kRest,  // the machine has finished or is leaving: start none
  kEnd,   // the job has ended: end the worker, then exit with this code
};

struct MachineAnswer {
  Order order = Order::kRest;
  std::string job_uid;  // if it differs from before, machine 0 was restarted
  int code = 0;         // valid for kEnd
  std::string reason;
};

template <typename A>
void Describe(A& fields, Of<A, WorkerEnd>& message) {
  fields.Field("exitCode", message.exit_code, protocol::limits::kExitCode);
  fields.Field("signal", message.signal, protocol::limits::kExitCode);
  fields.Field("reason", message.reason, protocol::limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, MachineReport>& message) {
  fields.Field("machine", message.machine, protocol::limits::kSlot);
  fields.Field("incarnation", message.incarnation, protocol::limits::kName);
  fields.Field("manifest", message.manifest, protocol::limits::kName);
  fields.Number("state", message.state, WorkerState::kEnded);
  fields.Field("worker", message.worker, protocol::limits::kName);
  fields.Field("end", message.end);
  fields.Field("isLeaving", message.is_leaving);
}
template <typename A>
void Describe(A& fields, Of<A, MachineAnswer>& message) {
  fields.Number("order", message.order, Order::kEnd);
  fields.Field("jobUid", message.job_uid, protocol::limits::kName);
  fields.Field("code", message.code, protocol::limits::kExitCode);
  fields.Field("reason", message.reason, protocol::limits::kText);
}

}  // namespace lockstep::launch
