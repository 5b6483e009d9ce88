#include "runtime/common/rendezvous/scaling.h"

#include <set>
#include <string>

namespace lockstep::rendezvous {
namespace {

// `sync` is the time in which a rank enters a round.
bool IsPartOfSteps(const std::string& phase) {
  static const std::set<std::string> kOthers = {"sync", "evaluate", "checkpoint"};
  return !kOthers.contains(phase);
}

double SecondsOf(const protocol::Progress& progress, const std::string& phase) {
  const auto found = progress.phase_seconds.find(phase);
  return found == progress.phase_seconds.end() ? 0 : found->second;
}

double StepSecondsOf(const protocol::Progress& progress) {
  double sum = 0;
  for (const auto& [phase, seconds] : progress.phase_seconds) sum += IsPartOfSteps(phase) ? seconds : 0;
  return sum;
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
  return {.steps = newest_.steps_total - begin_->steps_total,
          .samples = newest_.global_samples_total - begin_->global_samples_total,
          .seconds = StepSecondsOf(newest_) - StepSecondsOf(*begin_),
          .communication_seconds = SecondsOf(newest_, "reduce") - SecondsOf(*begin_, "reduce"),
          .data_seconds = SecondsOf(newest_, "data") - SecondsOf(*begin_, "data")};
}

}  // namespace lockstep::rendezvous
