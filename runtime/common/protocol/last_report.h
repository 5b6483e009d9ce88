#pragma once
// The last report of a pod whose training is complete: its newest heartbeat, in the termination message of
// its container. The kubelet keeps it in the pod's status, so that the operator learns how a job ended even
// if no operator received the heartbeat. Pure.

#include <optional>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::protocol {

// The kubelet truncates a termination message after 4096 bytes.
inline constexpr std::size_t kMaxLastReport = 4096;

// One line of JSON of at most kMaxLastReport bytes. Reports of single ranks and the output of a dead rank are
// always left out; if the rest is too long, also damaged checkpoints, then the oldest repairs. Empty if even
// that is too long.
[[nodiscard]] std::string EncodeLastReport(Heartbeat heartbeat);
// nullopt if the text is something else, such as a message of the user's own program.
[[nodiscard]] std::optional<Heartbeat> DecodeLastReport(const std::string& text);

}  // namespace lockstep::protocol
