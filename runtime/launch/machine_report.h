#pragma once
// What the machines of one `lockstep run` tell machine 0, and what it answers: POST with JSON bodies beside
// the paths of the rendezvous, with the same token. Each report says how things stand, so that one may be
// lost or come twice. Pure.

#include <string>
#include <string_view>

#include "runtime/common/protocol/fields.h"
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
  std::string incarnation;  // of the `lockstep run`
  std::string manifest;     // a hash: all must run the same
  WorkerState state = WorkerState::kNone;
  std::string worker;       // uid of the newest
  WorkerEnd end;            // of kEnded
  bool is_leaving = false;  // asked to stop: no worker is to be started any more
};

enum class Order {
  kRun,   // a worker is to run: start it, or another, where none does
  kRest,  // its work is done, or it is leaving: start none
  kEnd,   // the job has ended: end the worker, then with this code
};

struct MachineAnswer {
  Order order = Order::kRest;
  std::string job_uid;  // another than before: machine 0 was started again
  int code = 0;         // of kEnd
  std::string reason;
};

template <class V>
void Visit(WorkerEnd& m, V& v) {
  v("exitCode", m.exit_code, protocol::limits::kExitCode);
  v("signal", m.signal, protocol::limits::kExitCode);
  v("reason", m.reason, protocol::limits::kText);
}
template <class V>
void Visit(MachineReport& m, V& v) {
  v("machine", m.machine, protocol::limits::kSlot);
  v("incarnation", m.incarnation, protocol::limits::kName);
  v("manifest", m.manifest, protocol::limits::kName);
  v("state", m.state, protocol::limits::UpTo(WorkerState::kEnded));
  v("worker", m.worker, protocol::limits::kName);
  v("end", m.end);
  v("isLeaving", m.is_leaving);
}
template <class V>
void Visit(MachineAnswer& m, V& v) {
  v("order", m.order, protocol::limits::UpTo(Order::kEnd));
  v("jobUid", m.job_uid, protocol::limits::kName);
  v("code", m.code, protocol::limits::kExitCode);
  v("reason", m.reason, protocol::limits::kText);
}

}  // namespace lockstep::launch
