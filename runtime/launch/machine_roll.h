#pragma once
// What machine 0 of a `lockstep run` knows of the others, and what it answers to their reports. Pure; one
// thread calls it.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/launch/run_policy.h"

namespace lockstep::launch {

struct RollSettings {
  int count = 1;         // machines, machine 0 included
  std::string manifest;  // a hash
  std::string job_uid;
  SteadyTime::duration silence{};  // a machine that is not heard for so long is not counted on
};

class MachineRoll {
 public:
  // Called for each worker once: when it has ended (the verdict is what its machine is told), or when its
  // machine took it away.
  struct Callbacks {
    std::function<Order(int machine, const std::string& worker, const WorkerEnd& end)> on_end;
    std::function<void(int machine, const std::string& worker, const std::string& why)> on_lost;
  };

  MachineRoll(RollSettings settings, Callbacks callbacks)
      : settings_(std::move(settings)), callbacks_(std::move(callbacks)) {}

  // `ended`: the job has, and how.
  [[nodiscard]] MachineAnswer On(const MachineReport& report, const std::optional<RunEnd>& ended,
                                 SteadyTime now);

  // A worker of another machine runs, as far as is known.
  [[nodiscard]] bool AnyRuns(SteadyTime now) const;
  // A machine is yet to hear that the job has ended, or to say that its worker has.
  [[nodiscard]] bool AnyToTell(SteadyTime now) const;

 private:
  struct Machine {
    std::string incarnation;
    SteadyTime heard{};
    std::string worker;
    bool runs = false;
    std::string judged;  // the worker whose end was
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
