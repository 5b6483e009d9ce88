#pragma once
// Compares a message with the host's knowledge of the job: its settings and its newest round. Limits that
// apply to any job are in protocol/message_limits.h. An error names the field and the allowed values. Pure.

#include <cstdint>

#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::rendezvous {

// Members may form rounds again among themselves, and a status may be written late, so their round number may
// be ahead of the host's. At one formation per second it takes eleven days to get this far.
inline constexpr int64_t kMaxRoundsAhead = 1'000'000;

struct KnownOfJob {
  const JobSettings& settings;
  int64_t newest_round = 0;
  // The sender has no place in the host's records and asks for one.
  bool is_newcomer = false;
};

[[nodiscard]] Result<void> CheckMessage(const protocol::JoinRequest& request, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::WatchRequest& request, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::Heartbeat& heartbeat, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::BrokenReport& report, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::LeaveRequest& request, const KnownOfJob& known);

}  // namespace lockstep::rendezvous
