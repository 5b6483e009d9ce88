#include "runtime/witness/observer.h"

#include <algorithm>
#include <utility>

namespace lockstep::witness {
namespace {

using protocol::TrainPhase;

// A loader that takes longer is waited for.
constexpr Milliseconds kSlowData{1'000};

protocol::RankPhase PhaseOf(Activity activity) {
  switch (activity) {
    case Activity::kEvaluate: return protocol::RankPhase::kEvaluate;
    case Activity::kSave: return protocol::RankPhase::kSnapshot;
    case Activity::kStep:
    case Activity::kData:
    case Activity::kBackward:
    case Activity::kOptimizer:
    case Activity::kCollective: break;
  }
  return protocol::RankPhase::kTrain;
}

// Seconds by the names that lockstep-rank uses. A backward pass of DistributedDataParallel waits for the other ranks
// inside itself, so its time is not counted as computing (ComputeSeconds).
protocol::PhaseSeconds PhaseSecondsOf(const Observation& seen) {
  const auto spent = [&seen](TrainPhase phase, Activity activity) {
    return std::pair(std::string(NameOf(phase)), seen.seconds.at(static_cast<std::size_t>(activity)));
  };
  return {spent(TrainPhase::kData, Activity::kData),
          spent(TrainPhase::kForward, Activity::kStep),
          spent(TrainPhase::kBackwardReduce, Activity::kBackward),
          spent(TrainPhase::kOptimizer, Activity::kOptimizer),
          spent(TrainPhase::kReduce, Activity::kCollective),
          spent(TrainPhase::kEvaluate, Activity::kEvaluate),
          spent(TrainPhase::kCheckpoint, Activity::kSave)};
}

}  // namespace

std::vector<protocol::FromRank> Observer::Observe(const Observation& seen, bool is_stopped, SteadyTime now) {
  std::vector<protocol::FromRank> messages;
  if (seen.pid == 0 || seen.steps == 0) return messages;
  ReportPhase(seen, is_stopped, now, messages);
  ReportSteps(seen, messages);
  return messages;
}

// The framework counts the steps before a restart, and those that a loss scaler skipped, which the page does not.
void Observer::Take(const TrainerStatus& status, const Observation& seen) {
  status_ = status;
  first_step_ = std::max(first_step_, status.step - seen.steps);
}

void Observer::ReportPhase(const Observation& seen, bool is_stopped, SteadyTime now,
                           std::vector<protocol::FromRank>& messages) {
  const protocol::RankPhase phase = PhaseOf(seen.activity);
  if (std::exchange(phase_, phase) != phase) messages.emplace_back(protocol::PhaseChanged{phase});
  if (seen.activity != Activity::kData || is_stopped) {
    data_since_ = SteadyTime::max();
  } else if (data_since_ == SteadyTime::max()) {
    data_since_ = now;
  } else if (now - data_since_ >= kSlowData) {
    data_since_ = now;
    messages.emplace_back(protocol::PhaseChanged{protocol::RankPhase::kLoad});
  }
}

void Observer::ReportSteps(const Observation& seen, std::vector<protocol::FromRank>& messages) {
  const int64_t steps = seen.steps - reported_steps_;
  if (steps <= 0) return;
  if (reported_steps_ > 0) step_times_.Add(steps, std::max(0.0, seen.newest_step_at - reported_step_at_));
  reported_steps_ = seen.steps;
  reported_step_at_ = seen.newest_step_at;
  first_step_ = std::max(first_step_, seen.resumed_step);
  messages.emplace_back(protocol::Progress{.round = round_,
                                           .step = first_step_ + seen.steps,
                                           .total_steps = status_.total_steps,
                                           .epoch = status_.epoch,
                                           .loss = status_.loss,
                                           .learning_rate = status_.learning_rate,
                                           .gradient_norm = status_.gradient_norm,
                                           .steps_total = seen.steps,
                                           .phase_seconds = PhaseSecondsOf(seen)});
  messages.emplace_back(protocol::Usage{.step_times = step_times_});
}

protocol::Pong AnswerFor(const Observation& seen) {
  const bool is_in_collective =
      seen.activity == Activity::kBackward || seen.activity == Activity::kCollective;
  return {.waits_for_peers = is_in_collective || seen.may_wait_for_peers, .may_take_long = true};
}

}  // namespace lockstep::witness
