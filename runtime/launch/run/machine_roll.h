#pragma once
// Machine 0's record of the other machines of a `lockstep run`, and its answers to their reports. Pure;
// called by one thread.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/launch/run/run_policy.h"

namespace lockstep::launch {

struct RollSettings {
  int count = 1;         // machines, machine 0 included
  std::string manifest;  // a hash
  std::string job_uid;
  SteadyTime::duration silence{};  // a machine without a report for so long is considered lost
};

class MachineRoll {
 public:
  // Each is called once per worker: on_end when it has ended (the returned order is sent to its machine),
  // on_lost when its machine was lost or removed it.
  struct Callbacks {
    std::function<Order(int machine, const std::string& worker, const WorkerEnd& end)> on_end;
    std::function<void(int machine, const std::string& worker, const std::string& why)> on_lost;
  };

  MachineRoll(RollSettings settings, Callbacks callbacks)
      : settings_(std::move(settings)), callbacks_(std::move(callbacks)) {}

  // `ended`: set, with the outcome, if the job has ended.
  [[nodiscard]] MachineAnswer On(const MachineReport& report, const std::optional<RunEnd>& ended,
                                 SteadyTime now);

  // Whether a worker of another machine is running, as far as is known.
  [[nodiscard]] bool AnyRuns(SteadyTime now) const;
  // Whether a machine has yet to be notified that the job has ended, or to report the end of its worker.
  [[nodiscard]] bool AwaitsAny(SteadyTime now) const;

 private:
  struct Machine {
    std::string incarnation;
    SteadyTime heard{};
    std::string worker;
    bool runs = false;
    std::string judged;  // the worker whose end was handled
    Order order = Order::kRun;
  };

  [[nodiscard]] std::string WhyRefused(const MachineReport& report) const;
  [[nodiscard]] bool IsHeard(const Machine& machine, SteadyTime now) const {
    return now - machine.heard <= settings_.silence;
  }
  Machine& Enter(const MachineReport& report);
  void TakeEnd(const MachineReport& report, Machine& machine);
  [[nodiscard]] MachineAnswer End(const RunEnd& end) const {
    return {Order::kEnd, settings_.job_uid, end.code, end.reason};
  }

  RollSettings settings_;
  Callbacks callbacks_;
  std::map<int, Machine> machines_;
  std::set<std::string> replaced_;  // incarnations
};

}  // namespace lockstep::launch
