#pragma once
// Decides what follows the end of a worker of `lockstep run`, for all machines of a job: the part of the
// operator's failure policy that applies without Kubernetes. Pure.

#include <chrono>
#include <optional>
#include <string>

#include "runtime/launch/run/machine_report.h"

namespace lockstep::launch {

struct RunEnd {
  int code = 0;
  std::string reason;
};

struct Verdict {
  Order order = Order::kRest;  // for that worker's machine
  std::optional<RunEnd> end;   // of the job, with kEnd
};

class RunPolicy {
 public:
  RunPolicy(int max_restarts, bool is_program) : max_restarts_(max_restarts), is_program_(is_program) {}

  // `completed`: the job had completed before this end.
  [[nodiscard]] Verdict Judge(const WorkerEnd& end, bool completed);

 private:
  int max_restarts_;
  bool is_program_;
  int restarts_ = 0;
};

// The time between asking workers to end and killing them: the job's grace period, so that they can save,
// unless the job has reached its end.
[[nodiscard]] std::chrono::milliseconds TimeToEnd(int code, double grace_period_seconds);

}  // namespace lockstep::launch
