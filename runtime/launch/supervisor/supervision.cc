#include "runtime/launch/supervisor/supervision.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/damaged_checkpoints.h"
#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::launch {
namespace {

using protocol::ExitCode;
using protocol::LeaveMode;
using protocol::LeaveReason;

// The rendezvous counts as away after this time without an answer; it normally answers a heartbeat in
// milliseconds.
constexpr Milliseconds kHostSilence{1'000};

bool EndsThePod(int rank_exit_code) {
  return protocol::IsPermanent(rank_exit_code) || rank_exit_code == static_cast<int>(ExitCode::kDeviceLost);
}

// The exit code of a pod whose program failed for good. 0 and 143 are not used, because they mean success and
// preemption.
int PodExitCodeOf(int program_exit_code) {
  const bool is_taken = program_exit_code == 0 || program_exit_code == static_cast<int>(ExitCode::kPreempted);
  return is_taken ? static_cast<int>(ExitCode::kInfrastructure) : program_exit_code;
}

std::string Describe(const RankExited& event) {
  const std::string rank = "rank process " + std::to_string(event.local_rank);
  const std::string memory = event.out_of_memory ? ": out of memory" : "";
  if (event.signal == 0) return rank + " exited with code " + std::to_string(event.exit_code) + memory;
  const char* const name = sigabbrev_np(event.signal);
  return rank + " was ended by signal " + std::to_string(event.signal) +
         (name == nullptr ? "" : std::string(" (SIG") + name + ")") + memory;
}

}  // namespace

Supervision::Supervision(SupervisionSettings settings)
    : settings_(std::move(settings)),
      ranks_(static_cast<std::size_t>(settings_.config.nproc)),
      hang_detectors_(ranks_.size(), HangDetector(settings_.config.health)) {}

Actions Supervision::Start(SteadyTime now) {
  for (int i = 0; i < settings_.config.nproc; ++i) {
    hang_detectors_[static_cast<std::size_t>(i)].ProcessStarted(now);
    Do(SpawnRank{i});
  }
  return std::exchange(actions_, {});
}

Actions Supervision::On(const Event& event, SteadyTime now) {
  now_ = now;
  if (!exiting_) std::visit([&](const auto& e) { Handle(e, now); }, event);
  return std::exchange(actions_, {});
}

void Supervision::Handle(const RankMessage& event, SteadyTime now) {
  Rank& rank = ranks_.at(static_cast<std::size_t>(event.local_rank));
  hang_detectors_.at(static_cast<std::size_t>(event.local_rank)).OnMessage(event.message, now);
  if (const auto* ready = std::get_if<protocol::Ready>(&event.message)) {
    OnReady(rank, *ready, now);
  } else if (const auto* progress = std::get_if<protocol::Progress>(&event.message)) {
    OnProgress(rank, *progress, now);
  } else if (std::holds_alternative<protocol::Synced>(event.message)) {
    keeps_state_ = true;
    save_failed_ = {};
  } else if (const auto* broken = std::get_if<protocol::Broken>(&event.message)) {
    OnBroken(event.local_rank, *broken, now);
  } else if (const auto* evaluated = std::get_if<protocol::Evaluated>(&event.message)) {
    evaluation_ = *evaluated;
    Do(BeatNow{});
  } else if (const auto* saved = std::get_if<protocol::Saved>(&event.message)) {
    checkpoint_ = *saved;
    Do(BeatNow{});
  } else if (const auto* not_saved = std::get_if<protocol::SaveFailed>(&event.message)) {
    if (not_saved->step > save_failed_.step) Do(BeatNow{});
    if (not_saved->step >= save_failed_.step) save_failed_ = *not_saved;
  } else if (const auto* agreed = std::get_if<protocol::ProfileAgreed>(&event.message)) {
    profile_ = *agreed;
    Do(BeatNow{});
  } else if (const auto* damaged = std::get_if<protocol::CheckpointDamaged>(&event.message)) {
    if (protocol::KeepNewest(damaged_checkpoints_, *damaged)) Do(BeatNow{});
  } else if (const auto* away = std::get_if<protocol::StoreUnavailable>(&event.message)) {
    rank.store_unavailable = *away;
    Do(BeatNow{});
  } else if (std::holds_alternative<protocol::Finished>(event.message)) {
    rank.finished = !(settings_.is_program && stopping_);  // see Terminate
    Do(BeatNow{});
  } else if (const auto* failed = std::get_if<protocol::Failed>(&event.message)) {
    rank.failure = *failed;
  }
}

void Supervision::OnReady(Rank& rank, const protocol::Ready& ready, SteadyTime now) {
  rank.ready = ready;
  rank.state = RankState::kReady;
  if (settings_.is_program) rank.ending.reset();  // a program that was to be killed has ended
  JoinIfAllReady(now);
}

void Supervision::JoinIfAllReady(SteadyTime now) {
  if (!AllRanks(RankState::kReady)) return;
  if (stopping_ && !HandsOver()) {
    if (settings_.divides_state)
      ReportStopping(LeaveReason::kStopping);  // the others still wait for this pod
    return;
  }
  in_round_ = false;
  joining_ = true;
  join_started_ = now;
  join_clock_ = now;
  waits_for_others_ = false;
  join_failures_ = 0;
  Rejoin(std::chrono::milliseconds(0));
  if (!CanFormAgain()) return;
  // A join may wait long for other pods; the answer to a heartbeat shows whether the rendezvous is reachable.
  Do(BeatNow{});
  if (host_is_away_) AskMembersToForm(std::chrono::milliseconds(0));
}

void Supervision::Rejoin(std::chrono::milliseconds delay) {
  int64_t step = -1;
  for (const Rank& rank : ranks_) step = std::max(step, rank.ready.step);
  Do(StartJoin{{.job = settings_.config.job,
                .member = settings_.member,
                .address = settings_.address,
                .nproc = settings_.config.nproc,
                .store_port = ranks_.front().ready.store_port,
                .step = step,
                .last_round = formation_,
                .can_start_first = CanStartFirst(),
                // A rank that has finished is Ready as well, because it starts again if another rank fails.
                .finished = settings_.is_program && AllFinished()
                                ? protocol::FinishedRound{round_, world_, first_rank_}
                                : protocol::FinishedRound{}},
               delay});
}

bool Supervision::CanStartFirst() const {
  return !AllFinished() && std::all_of(ranks_.begin(), ranks_.end(),
                                       [](const Rank& rank) { return rank.ready.can_start_first; });
}

// The pod joins when the programs have.
void Supervision::StartPrograms(SteadyTime now) {
  joining_ = false;
  for (int i = 0; i < settings_.config.nproc; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ranks_[at] = Rank{};
    hang_detectors_[at].ProcessStarted(now);
    Do(SendToRank{i, protocol::StartFirst{i}});
  }
}

void Supervision::OnProgress(Rank& rank, const protocol::Progress& progress, SteadyTime now) {
  // A program reports the start of its round as progress without a step. Once it has reported steps, only the next
  // step shows that it has recovered.
  if (progress.IsStart() && best_step_ > 0) return;
  const bool first_of_round = progress.round > rank.progress.round;
  if (progress.step != rank.progress.step) step_made_ = now;
  rank.progress = progress;
  last_progress_ = now;
  if (break_.has_value() && progress.round > break_->repair.formation) {
    // A member whose ranks came back later does not know when the others went on.
    if (break_->entered_next == break_->repair.formation + 1)
      break_->repair.seconds = Seconds(now - break_->at).count();
    break_->repair.recovered_in = progress.round;
    repairs_.push_back(std::move(break_->repair));
    if (repairs_.size() > protocol::kKeptRepairs) repairs_.erase(repairs_.begin());
    break_.reset();
  }
  if (progress.step > best_step_) {
    best_step_ = progress.step;
    failures_without_progress_ = 0;
  }
  // The rendezvous measures the recovery time with this beat.
  if (first_of_round) Do(BeatNow{});
}

void Supervision::OnBroken(int local_rank, const protocol::Broken& broken, SteadyTime now) {
  constexpr int kCode = static_cast<int>(ExitCode::kInfrastructure);  // its process continues
  if (broken.round != formation_ || OnOwnError(broken.failed_step, broken.reason, "", kCode) || !in_round_)
    return;
  const bool own = broken.failed_step >= 0;
  if (own && GivesUp("rank process " + std::to_string(local_rank) + ": " + broken.reason, "", kCode)) return;
  Do(ReportBroken{{settings_.config.job, settings_.member, round_, broken.reason}});
  RememberBreak(broken.reason, {}, now);
  EndRoundLocally(LeaveMode::kAbort, local_rank, now);
}

void Supervision::RememberBreak(const std::string& reason, const protocol::RankFailure& failure,
                                SteadyTime now) {
  const bool says_who = break_.has_value() && !break_->repair.failure.ranks.empty();
  if (formation_ == 0 || says_who) return;
  // Training ended with the first break of a formation.
  const SteadyTime at = break_.has_value() ? break_->at : now;
  // Without a step in this formation the time until now was no training, and is booked as such.
  const SteadyTime last_step = last_progress_ > round_started_ ? last_progress_ : at;
  break_ = Break{{.formation = break_.has_value() ? break_->repair.formation : formation_,
                  .reason = reason,
                  .failure = failure,
                  .unfinished_seconds = std::max(0.0, Seconds(at - last_step).count())},
                 at,
                 break_.has_value() ? break_->entered_next : 0};
}

// The data plan is a function of the step, so the same step has the same samples and random numbers. If an
// error of a rank itself repeats at a step, another retry cannot help.
bool Supervision::OnOwnError(int64_t step, const std::string& reason, const std::string& last_lines,
                             int exit_code) {
  if (step < 0 || own_error_.formation == formation_) return false;
  const bool is_same = own_error_.step == step && own_error_.reason == reason;
  own_error_ = {formation_, step, reason};
  if (!is_same) return false;
  ExitNow(settings_.is_program ? PodExitCodeOf(exit_code) : static_cast<int>(ExitCode::kUserError),
          "failed twice at step " + std::to_string(step) + " on the same samples: " + reason,
          LeaveReason::kStopping, last_lines);
  return true;
}

void Supervision::EndRoundLocally(LeaveMode mode, int except_local_rank, SteadyTime now) {
  if (!in_round_) return;
  in_round_ = false;
  LeaveMembersAlone();
  for (int i = 0; i < settings_.config.nproc; ++i) {
    const bool training = ranks_[static_cast<std::size_t>(i)].state == RankState::kTraining;
    if (!training || i == except_local_rank) continue;
    Do(SendToRank{i, protocol::RoundOver{formation_, mode}});
    hang_detectors_[static_cast<std::size_t>(i)].LeaveRequested(mode, now);
  }
}

void Supervision::Handle(const RankExited& event, SteadyTime now) {
  Rank& rank = ranks_.at(static_cast<std::size_t>(event.local_rank));
  const protocol::RankFailure failure = FailureOf(event);
  rank.state = RankState::kExited;
  const bool clean = event.signal == 0 && event.exit_code == 0 && rank.finished;
  if (clean || stopping_) return ExitWhenAllEnded();
  if (event.signal == 0 && !settings_.is_program && EndsThePod(failure.exit_code)) {
    const std::string reason = rank.failure.reason.empty() ? Describe(event) : rank.failure.reason;
    return ExitNow(failure.exit_code, reason, LeaveReason::kStopping, event.last_lines);
  }
  if (OnOwnError(rank.failure.failed_step, rank.failure.reason, event.last_lines, failure.exit_code)) return;
  RespawnOrGiveUp(event, failure, now);
}

protocol::RankFailure Supervision::FailureOf(const RankExited& event) const {
  const Rank& rank = ranks_.at(static_cast<std::size_t>(event.local_rank));
  const bool died = event.signal != 0;
  int code = died ? 128 + event.signal : event.exit_code;
  if (!died && rank.failure.exit_code != 0) code = rank.failure.exit_code;
  protocol::RankFailure failure{.exit_code = code, .last_lines = event.last_lines};
  // A process that a signal killed did not choose its exit code, 128 + 15 included.
  if (!died && !settings_.is_program) failure.cause = protocol::CauseOf(code);
  if (rank.ending.has_value()) {
    failure.cause = protocol::CauseOf(static_cast<int>(rank.ending->code));
    failure.detection_seconds = rank.ending->detection_seconds;
  }
  if (rank.state == RankState::kTraining) failure.ranks = {first_rank_ + event.local_rank};
  return failure;
}

void Supervision::RespawnOrGiveUp(const RankExited& event, const protocol::RankFailure& failure,
                                  SteadyTime now) {
  const Rank& rank = ranks_.at(static_cast<std::size_t>(event.local_rank));
  std::string why = rank.failure.reason;
  if (rank.ending.has_value()) why = ReasonOf(*rank.ending);
  const std::string what = Describe(event) + (why.empty() ? "" : " (" + why + ")");
  const int exit_code =
      settings_.is_program ? PodExitCodeOf(failure.exit_code) : static_cast<int>(ExitCode::kInfrastructure);
  // Ranks of a pod often fail together, which is one failure.
  const bool was_training = !failure.ranks.empty();
  const bool is_counted = was_training && failed_formation_ == formation_;
  if (was_training) failed_formation_ = formation_;
  if (!is_counted && GivesUp(what, event.last_lines, exit_code)) return;
  if (round_ > 0 || joining_) {
    Do(ReportLeave{{settings_.config.job, settings_.member, round_, LeaveReason::kRankDied, what, failure}});
  }
  RememberBreak(what, failure, now);
  joining_ = false;
  Do(StopPolling{});
  LeaveMembersAlone();
  EndRoundLocally(LeaveMode::kAbort, event.local_rank, now);
  ranks_.at(static_cast<std::size_t>(event.local_rank)) = Rank{};
  hang_detectors_.at(static_cast<std::size_t>(event.local_rank)).ProcessStarted(now);
  Do(SpawnRank{event.local_rank});
}

bool Supervision::GivesUp(const std::string& what, const std::string& last_lines, int exit_code) {
  if (++failures_without_progress_ <= settings_.config.in_place_limit) return false;
  const std::string between = settings_.is_program
                                  ? " times without a round of healthPolicy.firstStepTimeoutSeconds, " +
                                        FormatNumber(settings_.config.health.first_step_timeout_seconds) +
                                        ", between"
                                  : " times without a new step between";
  ExitNow(exit_code, what + ", " + std::to_string(failures_without_progress_) + between,
          LeaveReason::kStopping, last_lines);
  return true;
}

void Supervision::Handle(const Tick&, SteadyTime now) {
  if (stopping_) return;  // the grace period limits what follows
  const bool is_silent = last_answer_ <= join_started_ && now - join_started_ >= kHostSilence;
  if (joining_ && is_silent && !asks_members_ && CanFormAgain())
    AskMembersToForm(std::chrono::milliseconds(0));
  // A program that has run for the configured time of a first step counts as having made progress.
  const bool has_proved_itself =
      settings_.is_program && in_round_ &&
      now - round_started_ >= Seconds(settings_.config.health.first_step_timeout_seconds);
  if (has_proved_itself) failures_without_progress_ = 0;
  for (int i = 0; i < settings_.config.nproc && !exiting_; ++i) LookForHang(i, now);
}

void Supervision::Handle(const Terminate&, SteadyTime) {
  if (stopping_) return;
  stopping_ = true;
  LeaveMembersAlone();
  // A program that has finished but had to wait for other ranks is not complete.
  if (settings_.is_program)
    for (Rank& rank : ranks_) rank.finished = false;
  AnnounceStop();
  const double grace = std::max(1.0, settings_.config.grace_period_seconds - 3.0);
  for (int i = 0; i < settings_.config.nproc; ++i) {
    if (ranks_[static_cast<std::size_t>(i)].state != RankState::kExited)
      Do(SendToRank{i, protocol::Stop{grace}});
  }
  Do(StartGrace{grace});
  ExitWhenAllEnded();
}

void Supervision::AnnounceStop() {
  if (settings_.divides_state && in_round_) return ReportStopping(LeaveReason::kHandingOver);
  // Between two rounds, ranks that have something to hand over join the next one first.
  if (settings_.divides_state && (!joining_ || HandsOver())) return;
  joining_ = false;
  ReportStopping(LeaveReason::kStopping);
}

bool Supervision::HandsOver() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ready.hands_over; });
}

void Supervision::ReportStopping(LeaveReason reason) {
  Do(ReportLeave{{settings_.config.job, settings_.member, round_, reason, "asked to stop", {}}});
}

void Supervision::Handle(const GraceOver&, SteadyTime) {
  ExitNow(static_cast<int>(ExitCode::kPreempted), "the grace period was used up", LeaveReason::kStopping);
}

void Supervision::ExitWhenAllEnded() {
  if (!AllRanks(RankState::kExited)) return;
  if (AllFinished())
    return ExitNow(static_cast<int>(ExitCode::kCompleted), "completed", LeaveReason::kCompleted);
  ExitNow(static_cast<int>(ExitCode::kPreempted), "stopped in good order", LeaveReason::kStopping);
}

void Supervision::ExitNow(int code, std::string reason, LeaveReason leave, std::string last_lines) {
  exiting_ = true;
  Do(StopPolling{});
  LeaveMembersAlone();
  for (int i = 0; i < settings_.config.nproc; ++i) {
    if (ranks_[static_cast<std::size_t>(i)].state != RankState::kExited) Do(DropRank{i});
  }
  if (code != static_cast<int>(ExitCode::kEvicted)) {
    Do(BeatNow{});
    Do(ReportLeave{{settings_.config.job,
                    settings_.member,
                    round_,
                    leave,
                    reason,
                    {.cause = protocol::CauseOf(protocol::MeaningOf(code, settings_.is_program))}}});
  }
  Do(Exit{code, std::move(reason), std::move(last_lines)});
}

bool Supervision::AllFinished() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.finished; });
}

bool Supervision::AllRanks(RankState state) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [state](const Rank& rank) { return rank.state == state; });
}

// The rendezvous only knows its own formation, which has the round's number.
protocol::Progress Supervision::OfRound(protocol::Progress progress) const {
  progress.round = std::min(progress.round, round_);
  return progress;
}

protocol::Heartbeat Supervision::CurrentHeartbeat() const {
  protocol::Heartbeat beat{.job = settings_.config.job,
                           .member = settings_.member,
                           .round = in_round_ ? round_ : 0,
                           .world = world_,
                           .first_rank = first_rank_,
                           .nproc = settings_.config.nproc,
                           .progress = OfRound(ranks_.front().progress),
                           .checkpoint = checkpoint_,
                           .evaluation = evaluation_,
                           .damaged_checkpoints = damaged_checkpoints_,
                           .save_failed = save_failed_,
                           .repairs = repairs_,
                           .keeps_state = keeps_state_};
  if (best_step_ > 0) beat.seconds_since_step = Seconds(now_ - step_made_).count();
  if (first_rank_ == 0) beat.profile = profile_;
  const auto waits = std::find_if(ranks_.begin(), ranks_.end(),
                                  [](const Rank& rank) { return !rank.store_unavailable.waiting.empty(); });
  if (waits != ranks_.end()) beat.store_unavailable = waits->store_unavailable;
  for (int i = 0; i < settings_.config.nproc; ++i) {
    const Rank& rank = ranks_[static_cast<std::size_t>(i)];
    beat.ranks.push_back({.rank = first_rank_ + i,
                          .step = rank.progress.step,
                          .work_round = OfRound(rank.progress).round,
                          .steps = rank.progress.steps_total,
                          .samples = rank.progress.samples_total,
                          .compute_seconds = protocol::ComputeSeconds(rank.progress.phase_seconds)});
  }
  return beat;
}

}  // namespace lockstep::launch
