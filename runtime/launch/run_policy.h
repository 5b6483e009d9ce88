#pragma once
// What follows from the end of a worker of `lockstep run`, for all machines of a job: the part of the
// operator's failure policy that holds without Kubernetes. Pure.

#include <chrono>
#include <optional>
#include <string>

#include "runtime/launch/machine_report.h"

namespace lockstep::launch {

struct RunEnd {
  int code = 0;
  std::string reason;
};

struct Verdict {
  Order order = Order::kRest;  // about that worker
  std::optional<RunEnd> end;   // of the job, with kEnd
};

class RunPolicy {
 public:
  RunPolicy(int max_restarts, bool is_program) : max_restarts_(max_restarts), is_program_(is_program) {}

  // `completed`: the job was, before this end.
  [[nodiscard]] Verdict Judge(const WorkerEnd& end, bool completed);

 private:
  int max_restarts_;
  bool is_program_;
  int restarts_ = 0;
};

// From the word to end until workers are killed: they get the job's grace period to save where it is not at
// its end.
[[nodiscard]] std::chrono::milliseconds TimeToEnd(int code, double grace_period_seconds);

}  // namespace lockstep::launch
