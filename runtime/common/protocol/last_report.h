#pragma once
// The last report of a pod whose training is complete: its newest heartbeat, in the termination message of its
// container. The kubelet keeps it in the pod's status, so that the operator learns how a job ended also where
// no operator was running to take the heartbeat. Pure.

#include <optional>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::protocol {

// The kubelet cuts a termination message after 4096 bytes.
inline constexpr std::size_t kMaxLastReport = 4096;

// One line of JSON of at most kMaxLastReport bytes. What does not fit is left out: reports of single ranks and
// what a dead rank wrote always, then damaged checkpoints, then the oldest repairs. Empty: not even that fits.
[[nodiscard]] std::string EncodeLastReport(Heartbeat heartbeat);
// No value where the text is something else, such as a message of the user's own program.
[[nodiscard]] std::optional<Heartbeat> DecodeLastReport(const std::string& text);

}  // namespace lockstep::protocol
