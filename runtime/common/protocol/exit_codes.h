#pragma once
// The meaning of the exit codes of `lockstep worker` and `lockstep-rank`, which the operator's failure policy
// reads. Documented in docs/reference/environment.md. Part of the protocol: add values, never renumber.

#include "runtime/common/protocol/failure_cause.h"

namespace lockstep::protocol {

enum class ExitCode : int {
  kCompleted = 0,
  kInfrastructure = 1,    // any other failure; retryable
  kBadConfiguration = 2,  // the manifest is invalid; a retry cannot help
  kUserError = 3,         // the training code or the data set is wrong; a retry cannot help
  kStore = 4,             // object store unreachable or denied after bounded retries
  kRendezvous = 5,        // no round within the join time-out; retryable
  kEvicted = 6,           // fenced by a newer incarnation or round; never returns
  kHang = 7,              // a rank made no progress and healthPolicy.onHang says ReplacePod; retryable
  kDeviceLost = 8,        // a device fails in every process; retryable on another node
  kStraggler = 9,         // healthPolicy.straggler.action says ReplacePod; retryable
  kPreempted = 143,       // SIGTERM, left in good order; not charged
};

// The meaning of a pod's exit code. A program of the user's own has its own codes: except for 0 and 143,
// which the supervisor sets, they only mean that it failed.
[[nodiscard]] constexpr int MeaningOf(int pod_exit_code, bool runs_program) {
  const bool is_ours = pod_exit_code == static_cast<int>(ExitCode::kCompleted) ||
                       pod_exit_code == static_cast<int>(ExitCode::kPreempted);
  return !runs_program || is_ours ? pod_exit_code : static_cast<int>(ExitCode::kInfrastructure);
}

[[nodiscard]] constexpr FailureCause CauseOf(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kBadConfiguration:
    case ExitCode::kUserError:
    case ExitCode::kStore: return FailureCause::kUserError;
    case ExitCode::kRendezvous: return FailureCause::kRendezvous;
    case ExitCode::kHang: return FailureCause::kHang;
    case ExitCode::kStraggler: return FailureCause::kStraggler;
    case ExitCode::kPreempted: return FailureCause::kPreemption;
    default: return FailureCause::kInfrastructure;
  }
}

// True if running the same job again cannot succeed.
[[nodiscard]] constexpr bool IsPermanent(int exit_code) {
  const auto code = static_cast<ExitCode>(exit_code);
  return code == ExitCode::kBadConfiguration || code == ExitCode::kUserError || code == ExitCode::kStore;
}

}  // namespace lockstep::protocol
