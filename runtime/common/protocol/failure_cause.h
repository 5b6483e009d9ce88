#pragma once
// Why a rank or a pod failed: the same words in the failure policy, in reports of supervisors, in
// `status.restarts[].cause` and in metrics. Pure.

#include <array>
#include <string_view>

namespace lockstep::protocol {

enum class FailureCause { kUserError, kInfrastructure, kPreemption, kHang, kStraggler, kRendezvous };

[[nodiscard]] constexpr auto WordsOf(FailureCause) {
  return std::to_array<std::string_view>(
      {"UserError", "Infrastructure", "Preemption", "Hang", "Straggler", "Rendezvous"});
}

}  // namespace lockstep::protocol
