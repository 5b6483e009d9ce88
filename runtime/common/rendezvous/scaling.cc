#include "runtime/common/rendezvous/scaling.h"

namespace lockstep::rendezvous {
namespace {

using protocol::SecondsOf;
using protocol::TrainPhase;

double StepSecondsOf(const protocol::Progress& progress) {
  return protocol::StepSeconds(progress.phase_seconds);
}

}  // namespace

// Also if the members formed the round again among themselves: rank 0 may have a new process, whose counters
// begin at 0, and an aborted step took time and has no result.
bool Scaling::BeginsAgainWith(const protocol::Progress& progress) const {
  return !entered_.has_value() || progress.round != newest_.round ||
         progress.steps_total < newest_.steps_total ||
         progress.repeated_steps_total != newest_.repeated_steps_total ||
         StepSecondsOf(progress) < StepSecondsOf(newest_);
}

void Scaling::Take(int64_t round, const protocol::Progress& progress) {
  if (round == 0 || progress.round != round) return;
  if (BeginsAgainWith(progress)) {
    entered_ = progress;
    begin_.reset();
  }
  newest_ = progress;
  // The first report may have the times of the last step of an earlier round, if a window is incomplete.
  if (!begin_.has_value() && progress.steps_total > entered_->steps_total) begin_ = progress;
}

MeasuredSteps Scaling::MeasuredIn(int64_t round) const {
  if (!begin_.has_value() || newest_.round != round) return {};
  const auto spent_in = [this](TrainPhase phase) {
    return SecondsOf(newest_.phase_seconds, phase) - SecondsOf(begin_->phase_seconds, phase);
  };
  return {.steps = newest_.steps_total - begin_->steps_total,
          .samples = newest_.global_samples_total - begin_->global_samples_total,
          .seconds = StepSecondsOf(newest_) - StepSecondsOf(*begin_),
          .communication_seconds = spent_in(TrainPhase::kReduce),
          .data_seconds = spent_in(TrainPhase::kData)};
}

}  // namespace lockstep::rendezvous
