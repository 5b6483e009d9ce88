// Supervision's handling of the answers of the rendezvous and of the members of the round.
#include <algorithm>
#include <utility>

#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/supervisor/supervision.h"

namespace lockstep::launch {
namespace {

using protocol::ExitCode;
using protocol::JoinState;
using protocol::LeaveReason;

// 50 ms, doubling to 2 s: retries succeed within seconds of the rendezvous' return, and 1,000 pods do not
// overload it.
std::chrono::milliseconds Backoff(int failures) {
  return std::chrono::milliseconds(std::min(2'000, 50 << std::min(failures, 6)));
}

}  // namespace

void Supervision::Handle(const JoinAnswered& event, SteadyTime now) {
  if (!joining_) return;
  if (!event.answer.ok()) {
    const Error& error = event.answer.error();
    if (error.code == ErrorCode::kGone) {
      return ExitNow(static_cast<int>(ExitCode::kEvicted), error.message, LeaveReason::kStopping);
    }
    if (!waits_for_others_ && JoinTimedOut(now)) {
      return ExitNow(static_cast<int>(ExitCode::kRendezvous),
                     "no round within rendezvous.joinTimeoutSeconds: " + error.message,
                     LeaveReason::kStopping);
    }
    if (!asks_members_ && CanFormAgain()) AskMembersToForm(std::chrono::milliseconds(0));
    return Rejoin(Backoff(join_failures_++));
  }
  HostAnswered(now);
  join_failures_ = 0;
  switch (event.answer->state) {
    case JoinState::kAssigned: return OnAssigned(*event.answer, now);
    case JoinState::kCompleted:
      return ExitNow(static_cast<int>(ExitCode::kCompleted), "training was completed by the other workers",
                     LeaveReason::kCompleted);
    case JoinState::kWaiting: return OnWaiting(*event.answer, now);
  }
}

void Supervision::OnWaiting(const protocol::JoinAnswer& answer, SteadyTime now) {
  if (answer.start_first && CanStartFirst()) return StartPrograms(now);
  const bool waited = std::exchange(waits_for_others_, answer.standby || !answer.waits_for.empty());
  if (waited || waits_for_others_) join_clock_ = now;
  if (!waited && !answer.waits_for.empty()) Do(ReportWaiting{answer.waits_for});
  if (JoinTimedOut(now)) {
    return ExitNow(static_cast<int>(ExitCode::kRendezvous),
                   "no round formed within rendezvous.joinTimeoutSeconds: too few workers joined",
                   LeaveReason::kStopping);
  }
  Rejoin(std::chrono::milliseconds(0));
}

bool Supervision::JoinTimedOut(SteadyTime now) const {
  return now - join_clock_ > Seconds(settings_.config.rendezvous.join_timeout_seconds);
}

void Supervision::OnAssigned(const protocol::JoinAnswer& answer, SteadyTime now) {
  round_ = answer.round;
  world_ = answer.world;
  first_rank_ = answer.first_rank;
  formations_ = {answer.store_host, answer.form_port, answer.form_key};
  hosts_ = answer.hosts;
  const bool is_first = first_rank_ == 0;
  Do(HostFormations{is_first ? round_ : 0, is_first ? world_ : 0});
  EnterFormation({.round = answer.round,
                  .store_host = answer.store_host,
                  .store_port = answer.store_port,
                  .newest_step = answer.newest_step,
                  .previous_end = answer.previous_end},
                 now);
}

void Supervision::OnFormedAgain(const protocol::FormAnswer& answer, SteadyTime now) {
  Do(StopPolling{});
  Do(ForgetReports{});
  EnterFormation({.round = answer.formation,
                  .store_host = formations_.host,
                  .store_port = answer.store_port,
                  .newest_step = answer.newest_step,
                  .previous_end = "Rendezvous: formed again by its members, the host is away"},
                 now);
  WatchMembers(std::chrono::milliseconds(0));
}

void Supervision::EnterFormation(const protocol::RankAssignment& place, SteadyTime now) {
  LeaveMembersAlone();
  joining_ = false;
  in_round_ = true;
  round_started_ = now;
  formation_ = place.round;
  if (break_.has_value() && break_->entered_next == 0) break_->entered_next = formation_;
  watch_failures_ = 0;
  for (int i = 0; i < settings_.config.nproc; ++i) {
    ranks_[static_cast<std::size_t>(i)].state = RankState::kTraining;
    ranks_[static_cast<std::size_t>(i)].finished = false;
    hang_detectors_[static_cast<std::size_t>(i)].Assigned(now);
    protocol::RankAssignment mine = place;
    mine.rank = first_rank_ + i;
    mine.world = world_;
    mine.local_rank = i;
    mine.address = settings_.address;
    if (mine.rank == 0 && settings_.is_program) mine.hosts = hosts_;
    Do(SendToRank{i, std::move(mine)});
  }
  Do(StartWatch{{settings_.config.job, settings_.member, round_}});
}

bool Supervision::CanFormAgain() const {
  return round_ > 0 && formations_.port > 0 && !stopping_ && !(settings_.is_program && AllFinished());
}

void Supervision::AskMembersToForm(std::chrono::milliseconds delay) {
  if (!std::exchange(asks_members_, true)) member_failures_ = 0;
  int64_t step = -1;
  for (const Rank& rank : ranks_) step = std::max(step, rank.ready.step);
  Do(StartForming{formations_,
                  {.job = settings_.config.job,
                   .round = round_,
                   .formation = formation_,
                   .first_rank = first_rank_,
                   .nproc = settings_.config.nproc,
                   .store_port = ranks_.front().ready.store_port,
                   .step = step},
                  delay});
}

void Supervision::WatchMembers(std::chrono::milliseconds delay) {
  if (!std::exchange(asks_members_, true)) member_failures_ = 0;
  Do(StartFormationWatch{formations_, {settings_.config.job, round_, formation_}, delay});
}

void Supervision::LeaveMembersAlone() {
  if (std::exchange(asks_members_, false)) Do(StopAskingMembers{});
}

// The rendezvous decides again from now on.
void Supervision::HostAnswered(SteadyTime now) {
  last_answer_ = now;
  LeaveMembersAlone();
}

void Supervision::Handle(const FormAnswered& event, SteadyTime now) {
  if (!joining_ || !asks_members_) return;
  if (event.answer.ok() && event.answer->formed) return OnFormedAgain(*event.answer, now);
  AskMembersToForm(event.answer.ok() ? std::chrono::milliseconds(0) : Backoff(member_failures_++));
}

void Supervision::Handle(const FormationWatchAnswered& event, SteadyTime now) {
  if (!in_round_ || !asks_members_ || event.formation != formation_) return;
  if (event.answer.ok() && event.answer->over) return EndRoundLocally(event.answer->mode, kNoRank, now);
  WatchMembers(event.answer.ok() ? std::chrono::milliseconds(0) : Backoff(member_failures_++));
}

void Supervision::Handle(const WatchAnswered& event, SteadyTime now) {
  if (EndsIt(event.round, event.answer, now) || !in_round_ || event.round != round_) return;
  // While the rendezvous is away, training continues: the data plane does not need it.
  if (event.answer.ok()) HostAnswered(now);
  if (!event.answer.ok() && !asks_members_ && CanFormAgain()) WatchMembers(std::chrono::milliseconds(0));
  watch_failures_ = event.answer.ok() ? 0 : watch_failures_ + 1;
  const auto delay = event.answer.ok() ? std::chrono::milliseconds(0) : Backoff(watch_failures_ - 1);
  Do(StartWatch{{settings_.config.job, settings_.member, round_}, delay});
}

// The watch continues independently, and the next heartbeat replaces a lost one.
void Supervision::Handle(const HeartbeatAnswered& event, SteadyTime now) {
  const bool is_back = std::exchange(host_is_away_, !event.answer.ok()) && event.answer.ok();
  if (EndsIt(event.round, event.answer, now)) return;
  if (event.answer.ok()) HostAnswered(now);
  if (host_is_away_ && in_round_ && !asks_members_ && CanFormAgain())
    WatchMembers(std::chrono::milliseconds(0));
  if (is_back) RestartPolls();
  if (!in_round_ || event.round != round_ || !event.answer.ok()) return;
  for (const protocol::Straggler& straggler : event.answer->stragglers) {
    if (!exiting_) OnStraggler(straggler, now);
  }
  if (!exiting_) OnSaveWanted(event.answer->save);
  if (!exiting_) OnProfileWanted(event.answer->profile);
  if (!exiting_) OnDeparture(departure_.value_or(protocol::NodeDeparts{event.answer->departure}));
}

// A request from before the outage may wait on a connection that is no longer served.
void Supervision::RestartPolls() {
  if (joining_) Rejoin(std::chrono::milliseconds(0));
  if (in_round_) Do(StartWatch{{settings_.config.job, settings_.member, round_}});
}

// Rank 0 announces the request to the other ranks with its next step.
void Supervision::OnSaveWanted(const std::string& request) {
  const std::pair wanted(request, round_);
  if (request.empty() || first_rank_ != 0 || save_requested_ == wanted) return;
  save_requested_ = wanted;
  Do(SendToRank{0, protocol::Save{}});
}

// Also remembers an empty request, because the same text may be requested again later.
void Supervision::OnProfileWanted(const protocol::ProfileWanted& request) {
  const std::pair wanted(request.request, round_);
  if (first_rank_ != 0 || profile_requested_ == wanted) return;
  profile_requested_ = wanted;
  if (!request.request.empty()) Do(SendToRank{0, request});
}

// Each start of a program learns it: the notice of the one before ended with it.
void Supervision::OnDeparture(const protocol::NodeDeparts& departs) {
  const std::pair departure(departs.reason, formation_);
  if (departs.reason.empty() || !settings_.is_program || departure_reported_ == departure) return;
  departure_reported_ = departure;
  for (int i = 0; i < settings_.config.nproc; ++i) Do(SendToRank{i, departs});
}

void Supervision::Handle(const DepartureFound& event, SteadyTime) {
  departure_ = event.departs;
  if (in_round_ && !exiting_) OnDeparture(*departure_);
}

bool Supervision::EndsIt(int64_t round, const Result<protocol::WatchAnswer>& answer, SteadyTime now) {
  if (!answer.ok() && answer.error().code == ErrorCode::kGone) {
    ExitNow(static_cast<int>(ExitCode::kEvicted), answer.error().message, LeaveReason::kStopping);
    return true;
  }
  if (!answer.ok() || !answer->over || !in_round_ || round != round_) return false;
  EndRoundLocally(answer->mode, kNoRank, now);
  return true;
}

}  // namespace lockstep::launch
