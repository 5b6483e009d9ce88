#include "runtime/common/rendezvous/spec_check.h"

#include <string>

namespace lockstep::rendezvous {
namespace {

Error NotAllowed(const std::string& field, const std::string& allowed, int64_t value) {
  return {ErrorCode::kInvalidArgument, field + ": must be " + allowed + ", not " + std::to_string(value)};
}

Result<void> CheckRound(const char* field, int64_t round, const KnownOfJob& known) {
  const int64_t most = known.newest_round + kMaxRoundsAhead;
  if (round <= most) return {};
  return NotAllowed(field, "at most " + std::to_string(most) + " in this job", round);
}

// Ranks first … first + count - 1 of a world.
Result<void> CheckPlace(const std::string& field, int first, int count, int world) {
  if (first + count <= world) return {};
  return NotAllowed(field, "at most world - nproc = " + std::to_string(world - count), first);
}

}  // namespace

Result<void> CheckMessage(const protocol::JoinRequest& request, const KnownOfJob& known) {
  LOCKSTEP_TRY(CheckRound("lastRound", request.last_round, known));
  LOCKSTEP_TRY(CheckRound("finished.round", request.finished.round, known));
  if (request.finished.round > 0) {
    LOCKSTEP_TRY(
        CheckPlace("finished.firstRank", request.finished.first_rank, request.nproc, request.finished.world));
  }
  // Other members joined under an older spec: they have state, and keep their places until they are replaced.
  if (!known.is_newcomer) return {};
  const int slots = known.settings.max_members + known.settings.standby_members;
  if (request.member.slot >= slots)
    return NotAllowed("member.slot", "below " + std::to_string(slots) + " in this job", request.member.slot);
  if (known.settings.nproc.has_value() && request.nproc != *known.settings.nproc)
    return NotAllowed("nproc", std::to_string(*known.settings.nproc) + ", as spec.nprocPerNode says",
                      request.nproc);
  return {};
}

Result<void> CheckMessage(const protocol::WatchRequest& request, const KnownOfJob& known) {
  return CheckRound("round", request.round, known);
}

Result<void> CheckMessage(const protocol::Heartbeat& heartbeat, const KnownOfJob& known) {
  LOCKSTEP_TRY(CheckRound("round", heartbeat.round, known));
  LOCKSTEP_TRY(CheckRound("progress.round", heartbeat.progress.round, known));
  const int end = heartbeat.first_rank + heartbeat.nproc;
  for (const protocol::RankReport& report : heartbeat.ranks) {
    LOCKSTEP_TRY(CheckRound("ranks[].workRound", report.work_round, known));
    if (report.rank < heartbeat.first_rank || report.rank >= end) {
      return NotAllowed(
          "ranks[].rank",
          "from firstRank = " + std::to_string(heartbeat.first_rank) + " to " + std::to_string(end - 1),
          report.rank);
    }
  }
  for (const protocol::Repair& repair : heartbeat.repairs)
    LOCKSTEP_TRY(CheckRound("repairs[].formation", repair.formation, known));
  if (!known.is_newcomer) return {};
  // A round is adopted from its members' heartbeats.
  const int most = protocol::kMaxMembers * heartbeat.nproc;
  if (heartbeat.world > most)
    return NotAllowed("world", "at most 10,000 times nproc = " + std::to_string(most), heartbeat.world);
  return CheckPlace("firstRank", heartbeat.first_rank, heartbeat.nproc, heartbeat.world);
}

Result<void> CheckMessage(const protocol::BrokenReport& report, const KnownOfJob& known) {
  return CheckRound("round", report.round, known);
}

Result<void> CheckMessage(const protocol::LeaveRequest& request, const KnownOfJob& known) {
  return CheckRound("round", request.round, known);
}

}  // namespace lockstep::rendezvous
