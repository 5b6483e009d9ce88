#pragma once
// What the exit code of `lockstep worker` and `lockstep-rank` means; the operator's failure policy reads it.
// Documented in docs/reference/environment.md. Values are part of the protocol: add, never renumber.

#include <string_view>

namespace lockstep::protocol {

enum class ExitCode : int {
  kCompleted = 0,
  kInfrastructure = 1,    // anything not named below; retryable
  kBadConfiguration = 2,  // the manifest asks for what cannot be; retrying cannot help
  kUserError = 3,         // training code or data set at fault; retrying cannot help
  kStore = 4,             // object store unreachable or denied after bounded retries
  kRendezvous = 5,        // no round within the join time-out; retryable
  kEvicted = 6,           // fenced out by a newer incarnation or round; never comes back
  kHang = 7,              // a rank made no progress and healthPolicy.onHang says ReplacePod; retryable
  kDeviceLost = 8,        // a device of this pod fails any process; retryable elsewhere
  kStraggler = 9,         // healthPolicy.straggler.action says ReplacePod; retryable
  kPreempted = 143,       // SIGTERM, left in good order; charged to nobody
};

// What a pod's exit code means. A program of the user's own has codes of its own: but for 0 and 143, which
// the supervisor chooses, they say only that it failed.
[[nodiscard]] constexpr int MeaningOf(int pod_exit_code, bool runs_program) {
  const bool is_ours = pod_exit_code == static_cast<int>(ExitCode::kCompleted) ||
                       pod_exit_code == static_cast<int>(ExitCode::kPreempted);
  return !runs_program || is_ours ? pod_exit_code : static_cast<int>(ExitCode::kInfrastructure);
}

// Why something failed, as the failure policy and `status.restarts[].cause` name it.
[[nodiscard]] constexpr std::string_view CauseOf(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kBadConfiguration:
    case ExitCode::kUserError:
    case ExitCode::kStore: return "UserError";
    case ExitCode::kRendezvous: return "Rendezvous";
    case ExitCode::kHang: return "Hang";
    case ExitCode::kStraggler: return "Straggler";
    case ExitCode::kPreempted: return "Preemption";
    default: return "Infrastructure";
  }
}

// True where running the same thing again cannot end differently.
[[nodiscard]] constexpr bool IsPermanent(int exit_code) {
  const auto code = static_cast<ExitCode>(exit_code);
  return code == ExitCode::kBadConfiguration || code == ExitCode::kUserError || code == ExitCode::kStore;
}

}  // namespace lockstep::protocol
