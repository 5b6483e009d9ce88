#pragma once
// Compares a message with what the host knows of the job: its settings and its newest round. What a field may
// hold in any job stands beside the field (protocol/message_limits.h). An error names the field and what is
// allowed. Pure.

#include <cstdint>

#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::rendezvous {

// Members form rounds again among themselves, and a status may be written late: what they know of may be ahead
// of the host. One formation each second takes eleven days to get so far.
inline constexpr int64_t kMaxRoundsAhead = 1'000'000;

struct KnownOfJob {
  const JobSettings& settings;
  int64_t newest_round = 0;
  // Of the message: its member has no place among those that the host knows, and asks for one.
  bool is_newcomer = false;
};

[[nodiscard]] Result<void> CheckMessage(const protocol::JoinRequest& request, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::WatchRequest& request, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::Heartbeat& heartbeat, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::BrokenReport& report, const KnownOfJob& known);
[[nodiscard]] Result<void> CheckMessage(const protocol::LeaveRequest& request, const KnownOfJob& known);

}  // namespace lockstep::rendezvous
