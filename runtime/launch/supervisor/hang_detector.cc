#include "runtime/launch/supervisor/hang_detector.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::launch {

using protocol::RankPhase;

namespace {

using Kind = HangFinding::Kind;

constexpr std::size_t kRemembered = 64;
// With fewer steps, the median may be that of a warm-up.
constexpr int64_t kEnoughSteps = 5;
// The minimum bound, because disks, networks and other processes on the machine pause for seconds.
constexpr double kLeastBoundSeconds = 10;
// Generous: the rank's control thread has nothing else to do.
constexpr Milliseconds kAnswerTime{2'000};
// Look is called several times a second: after a longer gap, this process itself was stopped or starved.
constexpr Milliseconds kOwnPause{2'000};
// Before a round is given up, there is this time to find out who is missing.
constexpr double kWarningSeconds = 3;

// Phases that a round repeats, so that their duration can be learned.
bool IsRepeated(std::optional<RankPhase> phase) {
  return phase == RankPhase::kEvaluate || phase == RankPhase::kSnapshot;
}

}  // namespace

std::string HangFinding::ToString() const {
  return "hangs: " + FormatNumber(silent_seconds) + " s without progress in phase " +
         std::string(NameOf(phase)) + " (bound " + FormatNumber(bound_seconds) + " s), " + why;
}

void TypicalTime::Add(double seconds) {
  newest_.push_back(seconds);
  if (newest_.size() > kRemembered) newest_.pop_front();
}

std::optional<double> TypicalTime::Median() const {
  if (newest_.empty()) return std::nullopt;
  std::vector<double> sorted(newest_.begin(), newest_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void HangDetector::ProcessStarted(SteadyTime now) { BeginPhase(RankPhase::kInit, now); }

void HangDetector::Assigned(SteadyTime now) {
  first_step_ = true;
  committed_at_.reset();
  BeginPhase(RankPhase::kSync, now);
}

void HangDetector::LeaveRequested(protocol::LeaveMode mode, SteadyTime now) {
  if (!Bound().has_value()) return;
  leave_requested_ = now;
  leave_mode_ = mode;
  asked_.reset();
}

void HangDetector::OnMessage(const protocol::FromRank& message, SteadyTime now) {
  if (const auto* progress = std::get_if<protocol::Progress>(&message)) {
    OnProgress(*progress, now);
  } else if (const auto* phase = std::get_if<protocol::PhaseChanged>(&message)) {
    OnPhase(phase->phase, now);
  } else if (std::holds_alternative<protocol::Ready>(message)) {
    BeginPhase(std::nullopt, now);
  } else if (const auto* pong = std::get_if<protocol::Pong>(&message)) {
    answer_ = *pong;
    const bool has_to_leave = leave_mode_ == protocol::LeaveMode::kAbort && pong->waits_for_peers;
    if (!has_to_leave) leave_requested_.reset();
  }
}

void HangDetector::OnPhase(RankPhase phase, SteadyTime now) {
  const bool waits_for_data = phase == RankPhase::kLoad && phase_ != RankPhase::kInit;
  if (waits_for_data || (IsRepeated(phase) && phase == phase_)) {
    alive_ = now;
    return NewSilence();
  }
  // A phase that the end of the round interrupted is not followed by training.
  if (IsRepeated(phase_) && phase == RankPhase::kTrain)
    phase_times_[*phase_].Add(Seconds(now - since_).count());
  BeginPhase(phase, now);
}

void HangDetector::OnProgress(const protocol::Progress& progress, SteadyTime now) {
  const int64_t reached = progress.step + progress.steps_under_way;
  if (phase_ == RankPhase::kTrain) {
    const int64_t steps = reached - last_step_;
    // Messages are sent rarely: one may cover many steps.
    if (!first_step_ && steps > 0) {
      step_times_.Add(Seconds(now - since_).count() / static_cast<double>(steps));
      known_steps_ += steps;
    }
    first_step_ = false;
  }
  last_step_ = reached;
  LearnWindow(progress.step, now);
  SignOfLife(now);
}

// Learns the time between two messages that report committed steps.
void HangDetector::LearnWindow(int64_t step, SteadyTime now) {
  if (committed_at_.has_value() && step <= committed_step_) return;
  if (committed_at_.has_value()) window_times_.Add(Seconds(now - *committed_at_).count());
  committed_at_ = now;
  committed_step_ = step;
}

void HangDetector::BeginPhase(std::optional<RankPhase> phase, SteadyTime now) {
  phase_ = phase;
  // A rank that has left its round waits for the next one.
  if (!phase.has_value() || phase == RankPhase::kInit || phase == RankPhase::kSync) leave_requested_.reset();
  SignOfLife(now);
}

void HangDetector::SignOfLife(SteadyTime now) {
  since_ = now;
  NewSilence();
}

void HangDetector::NewSilence() {
  asked_.reset();
  warned_ = false;
  gave_round_up_ = false;
  found_ = false;
}

std::optional<double> HangDetector::Bound() const {
  if (!phase_.has_value() || phase_ == RankPhase::kProgram) return std::nullopt;
  if (HasBoundOfTheJob()) return config_.step_timeout_seconds;
  if (phase_ == RankPhase::kTrain && !first_step_) {
    return Learned(known_steps_ < kEnoughSteps ? std::nullopt : step_times_.Median());
  }
  if (phase_ == RankPhase::kAverage) return Learned(window_times_.Median());
  const auto known = phase_times_.find(*phase_);
  return Learned(known == phase_times_.end() ? std::nullopt : known->second.Median());
}

bool HangDetector::HasBoundOfTheJob() const {
  return phase_ == RankPhase::kTrain && !first_step_ && config_.step_timeout_seconds > 0;
}

double HangDetector::Learned(const std::optional<double>& typical) const {
  if (!typical.has_value()) return config_.first_step_timeout_seconds;
  return std::max(kLeastBoundSeconds, config_.step_timeout_factor * *typical);
}

HangFinding HangDetector::Look(SteadyTime now) {
  ForgiveOwnPause(now);
  const std::optional<double> bound = Bound();
  if (!bound.has_value() || found_) return {};
  if (leave_requested_.has_value()) return JudgeLeaving(now);
  const double silent = Seconds(now - std::max(since_, alive_)).count();
  return silent < *bound ? HangFinding{} : Judge(silent, *bound, now);
}

// While this process did not run, a missing message does not count as silence. Messages sent meanwhile are
// still queued.
void HangDetector::ForgiveOwnPause(SteadyTime now) {
  const SteadyTime before = std::exchange(last_look_, now).value_or(now);
  if (now - before < kOwnPause) return;
  since_ = std::min(now, since_ + (now - before));
  alive_ = std::min(now, alive_ + (now - before));
  if (leave_requested_.has_value()) leave_requested_ = now;
  asked_.reset();
}

HangFinding HangDetector::Judge(double silent, double bound, SteadyTime now) {
  if (!asked_.has_value()) {
    asked_ = now;
    answer_.reset();
    return {.kind = Kind::kAsk};
  }
  const bool may_take_long = answer_.has_value() && answer_->may_take_long && !HasBoundOfTheJob();
  const double own_bound = may_take_long ? std::max(bound, config_.first_step_timeout_seconds) : bound;
  if (silent < own_bound) {
    AskAgain(now);
    return {};
  }
  HangFinding finding{Kind::kHangs, *phase_, silent, own_bound, "does not answer"};
  // By then the responsible rank has been found, its stack written and its process killed, even if the bound is short.
  const double victim_bound = own_bound + std::max(bound, kLeastBoundSeconds);
  const bool is_victim = answer_.has_value() && answer_->waits_for_peers;
  if (is_victim && !gave_round_up_ && silent >= victim_bound) {
    gave_round_up_ = true;
    finding.kind = Kind::kRoundIsStuck;
    finding.why = "waits for its peers";
    return finding;
  }
  if (is_victim && !warned_ && silent >= victim_bound - kWarningSeconds) {
    warned_ = true;
    return {.kind = Kind::kRoundSeemsStuck};
  }
  if (is_victim && silent < 2 * victim_bound) {
    AskAgain(now);
    return {};
  }
  if (answer_.has_value()) {
    finding.why = is_victim ? "does not leave a collective" : "does not wait for its peers";
  } else if (now - *asked_ < kAnswerTime) {
    return {};
  }
  found_ = true;
  return finding;
}

// After its answer the rank may come to hang itself before it reports anything.
void HangDetector::AskAgain(SteadyTime now) {
  if (now - *asked_ >= kAnswerTime) asked_.reset();
}

HangFinding HangDetector::JudgeLeaving(SteadyTime now) {
  if (!asked_.has_value()) {
    asked_ = now;
    answer_.reset();
    return {.kind = Kind::kAsk};
  }
  if (Seconds(now - *leave_requested_).count() < kLeastBoundSeconds) {
    AskAgain(now);
    return {};
  }
  found_ = true;
  return {Kind::kHangs, *phase_, Seconds(now - since_).count(), kLeastBoundSeconds,
          answer_.has_value() ? "waits for its peers and does not leave its round"
                              : "does not answer and does not leave its round"};
}

}  // namespace lockstep::launch
