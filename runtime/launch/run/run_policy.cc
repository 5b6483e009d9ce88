#include "runtime/launch/run/run_policy.h"

#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::launch {

Verdict RunPolicy::Judge(const WorkerEnd& end, bool completed) {
  // By spec.successPolicy, a worker that succeeds decides for all.
  if ((end.signal == 0 && end.exit_code == 0) || completed) return {.order = Order::kRest, .end = {}};
  if (end.signal == 0 && protocol::IsPermanent(protocol::MeaningOf(end.exit_code, is_program_)))
    return {Order::kEnd, RunEnd{end.exit_code, end.reason}};
  const bool charged = end.exit_code != static_cast<int>(protocol::ExitCode::kPreempted);
  if (charged && ++restarts_ > max_restarts_) {
    return {Order::kEnd, RunEnd{end.exit_code, "failurePolicy.maxRestarts is used up: " + end.reason}};
  }
  return {.order = Order::kRun, .end = {}};
}

std::chrono::milliseconds TimeToEnd(int code, double grace_period_seconds) {
  using namespace std::chrono_literals;
  if (code != static_cast<int>(protocol::ExitCode::kPreempted)) return 10s;
  return 5s + std::chrono::milliseconds(static_cast<int64_t>(grace_period_seconds * 1000));
}

}  // namespace lockstep::launch
