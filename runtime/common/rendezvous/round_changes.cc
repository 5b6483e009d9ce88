#include "runtime/common/rendezvous/round_changes.h"

#include <algorithm>
#include <cmath>

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kKeptChanges = 10;
constexpr std::size_t kNamedDepartures = 3;  // the others are only counted
constexpr double kSameSeconds = 0.5;         // two measurements of one recovery differ by message delays

std::string ReasonOf(const std::vector<Departure>& departures) {
  std::string reason;
  for (std::size_t i = 0; i < std::min(departures.size(), kNamedDepartures); ++i) {
    reason += (i == 0 ? "" : "; ") + departures[i].pod + ": " + departures[i].reason;
  }
  const std::size_t others = departures.size() - std::min(departures.size(), kNamedDepartures);
  return others == 0 ? reason : reason + "; and " + std::to_string(others) + " more";
}

void TakeDeparture(const Departure& departure, std::vector<Departure>& known) {
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const Departure& entry) { return entry.pod_uid == departure.pod_uid; });
  if (found == known.end()) {
    known.push_back(departure);
    return;
  }
  const bool is_back = found->is_back;
  *found = departure;
  found->is_back = is_back;
}

void RaiseLevel(const ClosedRound& closed, RoundChange& change) {
  for (Departure& departure : change.departures) {
    const auto peer = std::find_if(closed.peers.begin(), closed.peers.end(),
                                   [&](const Peer& entry) { return entry.slot == departure.slot; });
    if (departure.is_back || peer == closed.peers.end()) continue;
    departure.is_back = true;
    if (peer->pod_uid != departure.pod_uid) {
      change.level = std::max(change.level, RecoveryLevel::kReplacePod);
    } else if (departure.exit_code.has_value() || !peer->holds_state) {
      change.level = std::max(change.level, RecoveryLevel::kRespawn);
    }  // otherwise it was only unreachable
  }
}

// The members measure from the break to the next step, if they were in the next round. A host that was stopped
// in between has measured its own pause.
bool Correct(const protocol::Repair& repair, RoundChange& change) {
  const double seconds = repair.seconds;
  const bool is_measured = change.recovery_seconds > 0;
  // Without members_measured, the host knows of the break and still waits for the next step.
  if (seconds == 0 || (!is_measured && !change.members_measured)) return false;
  const double more = seconds - change.recovery_seconds;
  const bool is_same = change.members_measured ? more <= kSameSeconds : std::abs(more) <= kSameSeconds;
  if (is_measured && is_same) return false;
  change.recovery_seconds = seconds;
  change.recovered_in = repair.recovered_in;
  change.members_measured = true;
  return true;
}

Departure DepartureFrom(const protocol::Member& member, const protocol::Repair& repair) {
  const protocol::RankFailure& failure = repair.failure;
  Departure departure{.pod = member.pod,
                      .pod_uid = member.pod_uid,
                      .slot = member.slot,
                      .ranks = failure.ranks,
                      .cause = failure.cause,
                      .reason = repair.reason,
                      .detection_seconds = failure.detection_seconds,
                      .last_lines = failure.last_lines,
                      .is_back = true};
  if (failure.exit_code != 0) departure.exit_code = failure.exit_code;
  return departure;
}

}  // namespace

void RecordEnding(const Ending& ending, std::vector<RoundChange>& changes) {
  if (changes.empty() || changes.back().round != ending.round) {
    changes.push_back({.round = ending.round, .cause = ending.cause, .reason = ending.reason});
    if (changes.size() > kKeptChanges) changes.erase(changes.begin());
  }
  RoundChange& change = changes.back();
  for (const Departure& departure : ending.departures) TakeDeparture(departure, change.departures);
  if (change.departures.empty()) return;
  change.cause = change.departures.front().cause;
  change.reason = ReasonOf(change.departures);
}

void RecordClosing(const Ending& ending, const ClosedRound& closed, bool is_full,
                   std::vector<RoundChange>& changes) {
  for (RoundChange& change : changes) {
    if (change.is_repaired) continue;
    const auto departed = static_cast<int>(change.departures.size());
    if (change.round == ending.round && departed == ending.members) change.level = RecoveryLevel::kCheckpoint;
    RaiseLevel(closed, change);
    change.is_repaired = is_full || std::all_of(change.departures.begin(), change.departures.end(),
                                                [](const Departure& entry) { return entry.is_back; });
  }
}

bool RecordRepair(const protocol::Member& member, const protocol::Repair& repair,
                  std::vector<RoundChange>& changes) {
  // Repairs are reported repeatedly, even after ten newer ones have replaced them in the list.
  if (changes.size() == kKeptChanges && repair.formation < changes.front().round) return false;
  auto change = std::find_if(changes.begin(), changes.end(),
                             [&](const RoundChange& entry) { return entry.round >= repair.formation; });
  const bool is_new = change == changes.end() || change->round != repair.formation;
  if (is_new) {
    change = changes.insert(change, {.round = repair.formation,
                                     .cause = repair.failure.cause,
                                     .reason = member.pod + ": " + repair.reason,
                                     .is_repaired = true,
                                     .recovery_seconds = repair.seconds,
                                     .members_measured = true,
                                     .recovered_in = repair.recovered_in,
                                     .unfinished_seconds = repair.unfinished_seconds});
  }
  const bool is_corrected = Correct(repair, *change);
  const bool is_known = std::any_of(change->departures.begin(), change->departures.end(),
                                    [&](const Departure& entry) { return entry.pod_uid == member.pod_uid; });
  const bool names_rank = !repair.failure.ranks.empty() && !is_known;
  if (names_rank) {
    change->level = std::max(change->level, RecoveryLevel::kRespawn);
    change->departures.push_back(DepartureFrom(member, repair));
    change->cause = change->departures.front().cause;
    change->reason = ReasonOf(change->departures);
  }
  if (changes.size() > kKeptChanges) changes.erase(changes.begin());
  return is_new || names_rank || is_corrected;
}

}  // namespace lockstep::rendezvous
