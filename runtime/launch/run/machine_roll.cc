#include "runtime/launch/run/machine_roll.h"

#include <algorithm>

#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::launch {

using protocol::ExitCode;

MachineAnswer MachineRoll::On(const MachineReport& report, const std::optional<RunEnd>& ended,
                              SteadyTime now) {
  if (const std::string why = WhyRefused(report); !why.empty())
    return End({static_cast<int>(ExitCode::kBadConfiguration), why});
  if (replaced_.contains(report.incarnation)) {
    return End(
        {static_cast<int>(ExitCode::kEvicted), "machine " + std::to_string(report.machine) +
                                                   " was restarted, and its new process replaces this one"});
  }
  Machine& machine = Enter(report);
  machine.heard = now;
  machine.worker = report.worker;
  machine.runs = report.state == WorkerState::kRuns;
  if (report.state == WorkerState::kEnded && machine.judged != report.worker) TakeEnd(report, machine);
  if (report.state != WorkerState::kEnded) machine.order = Order::kRun;
  const Order order = report.is_leaving ? Order::kRest : machine.order;
  const bool is_gone = !machine.runs && (ended.has_value() || report.is_leaving);
  if (is_gone) machines_.erase(report.machine);
  if (ended.has_value()) return End(*ended);
  return {.order = order, .job_uid = settings_.job_uid};
}

void MachineRoll::TakeEnd(const MachineReport& report, Machine& machine) {
  machine.judged = report.worker;
  if (report.is_leaving && report.end.exit_code != static_cast<int>(ExitCode::kCompleted)) {
    callbacks_.on_lost(report.machine, report.worker, "its machine was asked to stop");
  } else {
    machine.order = callbacks_.on_end(report.machine, report.worker, report.end);
  }
}

std::string MachineRoll::WhyRefused(const MachineReport& report) const {
  if (report.machine < 1 || report.machine >= settings_.count) {
    return "machine " + std::to_string(report.machine) + " is none of the " +
           std::to_string(settings_.count) + " that machine 0 knows of";
  }
  if (report.manifest != settings_.manifest) {
    return "the manifest of machine " + std::to_string(report.machine) +
           " differs from that of machine 0: start all with the same manifest and flags";
  }
  return "";
}

MachineRoll::Machine& MachineRoll::Enter(const MachineReport& report) {
  Machine& machine = machines_[report.machine];
  if (machine.incarnation == report.incarnation) return machine;
  if (!machine.incarnation.empty()) {
    replaced_.insert(machine.incarnation);
    if (machine.runs) callbacks_.on_lost(report.machine, machine.worker, "its machine was restarted");
  }
  machine = Machine{.incarnation = report.incarnation};
  return machine;
}

bool MachineRoll::AnyRuns(SteadyTime now) const {
  return std::any_of(machines_.begin(), machines_.end(),
                     [&](const auto& entry) { return entry.second.runs && IsHeard(entry.second, now); });
}

bool MachineRoll::AwaitsAny(SteadyTime now) const {
  return std::any_of(machines_.begin(), machines_.end(),
                     [&](const auto& entry) { return IsHeard(entry.second, now); });
}

}  // namespace lockstep::launch
