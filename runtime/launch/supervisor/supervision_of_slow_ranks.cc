// Supervision's handling of ranks that hang, of what NCCL knows of them, and of stragglers.
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/supervisor/supervision.h"

namespace lockstep::launch {
namespace {

using protocol::ExitCode;
using protocol::LeaveMode;
using protocol::LeaveReason;

// The time for a hanging rank to write its stack. A stopped process cannot.
constexpr Milliseconds kStackTime{1'000};
// The time for a program to be dead after its rank was asked to kill it, which also ends what the program has left behind,
// and looks for its last checkpoint; then the rank's process is killed, and with it the interpreter that it has parked.
constexpr Milliseconds kProgramDeathTime{10'000};
// NCCL passes a question on between all its processes, each of which remembers the newest 64 (COLL_HISTORY_SIZE in its
// src/ras/collectives.cc). With more at a time, an old one might be passed on again.
constexpr int kMostPodsThatAsk = 32;

}  // namespace

void Supervision::LookForHang(int local_rank, SteadyTime now) {
  Rank& rank = ranks_.at(static_cast<std::size_t>(local_rank));
  if (rank.state == RankState::kExited) return;
  if (rank.ending.has_value()) {
    if (now >= rank.ending->at) EndRank(local_rank, now);
    return;
  }
  const HangFinding finding = hang_detectors_.at(static_cast<std::size_t>(local_rank)).Look(now);
  if (finding.kind == HangFinding::Kind::kAsk) Do(SendToRank{local_rank, protocol::Ping{}});
  if (finding.kind == HangFinding::Kind::kHangs) OnHang(local_rank, finding, now);
  const bool may_act = settings_.config.health.on_hang != protocol::HealthAction::kReport;
  if (finding.kind == HangFinding::Kind::kRoundSeemsStuck && may_act) LookForMissing(now);
  if (finding.kind == HangFinding::Kind::kRoundIsStuck && in_round_ && may_act) {
    Do(ReportBroken{{settings_.config.job, settings_.member, round_,
                     "rank process " + std::to_string(local_rank) + " " + finding.ToString() + ByNccl()}});
    EndRoundLocally(LeaveMode::kAbort, kNoRank, now);
  }
}

void Supervision::OnHang(int local_rank, const HangFinding& finding, SteadyTime now) {
  Do(ReportHang{local_rank, finding});
  LookForMissing(now);
  const protocol::HealthAction action = settings_.config.health.on_hang;
  if (action == protocol::HealthAction::kReport) return;
  Do(WriteStack{local_rank});
  ranks_.at(static_cast<std::size_t>(local_rank)).ending =
      Ending{ExitCode::kHang, finding.ToString(), action, now + kStackTime, finding.silent_seconds};
}

void Supervision::LookForMissing(SteadyTime now) {
  const bool may_ask = first_rank_ == 0 || world_ <= kMostPodsThatAsk * settings_.config.nproc;
  const bool is_asked = asked_nccl_.has_value() && now - *asked_nccl_ < kNcclTime;
  if (!in_round_ || !may_ask || is_asked) return;
  asked_nccl_ = now;
  Do(AskNccl{formation_, world_});
}

void Supervision::Handle(const NcclAnswered& event, SteadyTime) { nccl_ = event; }

std::string Supervision::ByNccl() const {
  return nccl_.formation == formation_ && !nccl_.text.empty() ? "; by NCCL: " + nccl_.text : "";
}

std::string Supervision::ReasonOf(const Ending& ending) const {
  return ending.why + (ending.code == ExitCode::kHang ? ByNccl() : "");
}

void Supervision::OnStraggler(const protocol::Straggler& straggler, SteadyTime now) {
  const protocol::HealthAction action = settings_.config.health.on_straggler;
  const int local_rank = straggler.rank - first_rank_;
  if (action == protocol::HealthAction::kReport || local_rank < 0 || local_rank >= settings_.config.nproc)
    return;
  Rank& rank = ranks_.at(static_cast<std::size_t>(local_rank));
  // In the grace period it may be saving.
  if (stopping_ || rank.state != RankState::kTraining || rank.ending.has_value()) return;
  rank.ending = Ending{
      ExitCode::kStraggler,
      "is a straggler: computes " + FormatNumber(straggler.slowness, 2) + " times as long as the median rank",
      action, now};
  EndRank(local_rank, now);
}

void Supervision::EndRank(int local_rank, SteadyTime now) {
  Ending& ending = *ranks_.at(static_cast<std::size_t>(local_rank)).ending;
  if (ending.action == protocol::HealthAction::kReplacePod) {
    return ExitNow(static_cast<int>(ending.code),
                   "rank process " + std::to_string(local_rank) + " " + ReasonOf(ending),
                   LeaveReason::kStopping);
  }
  if (settings_.is_program && !std::exchange(ending.killed_program, true)) {
    ending.at = now + kProgramDeathTime;
    return Do(SendToRank{local_rank, protocol::KillProgram{}});
  }
  ending.at = SteadyTime::max();
  Do(KillRank{local_rank});
}

}  // namespace lockstep::launch
