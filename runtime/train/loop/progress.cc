#include "runtime/train/loop/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::train {
namespace {

using protocol::HistoryKind;
using protocol::HistoryRecord;

constexpr Milliseconds kInterval{100};
constexpr Milliseconds kLogInterval{10'000};
constexpr Milliseconds kSignInterval{1'000};
// Samples older than a few of these intervals hardly contribute to the rate.
constexpr double kSmoothingSeconds = 3;

}  // namespace

ProgressReporter::ProgressReporter(protocol::ControlLink& link, const PhaseClock& phases, const Clock& clock,
                                   int64_t total_steps, int64_t steps_per_epoch, int64_t tokens_per_sample,
                                   bool logs_always)
    : link_(link),
      phases_(phases),
      clock_(clock),
      steps_per_epoch_(static_cast<double>(steps_per_epoch)),
      tokens_per_sample_(tokens_per_sample),
      logs_always_(logs_always) {
  progress_.total_steps = total_steps;
}

void ProgressReporter::EnterRound(const protocol::RankAssignment& assignment, int64_t step,
                                  StateSource source) {
  progress_.round = assignment.round;
  rank_ = assignment.rank;
  world_ = assignment.world;
  if (step != progress_.step) {  // false if other ranks made the steps, or steps will be repeated
    corrupt_in_epoch_ = 0;
    corrupt_since_step_ = step;
  }
  progress_.step = step;
  progress_.steps_under_way = 0;
  progress_.epoch = static_cast<double>(step) / steps_per_epoch_;
  first_of_round_ = true;
  last_logged_ = {};
  last_commit_ = clock_.Steady();
  (void)CommunicationSeconds();
  // All ranks went back to a checkpoint, so later records will be made again.
  std::erase_if(history_, [step](const HistoryRecord& record) { return record.step > step; });
  HistoryRecord record = RecordOf(HistoryKind::kRound);
  record.source = NameOf(source);
  record.cause = assignment.previous_end;
  protocol::Append(history_, std::move(record));
  if (!Logs()) return;
  log::Info("round begins", {{"round", progress_.round},
                             {"world", world_},
                             {"step", step},
                             {"state", NameOf(source)},
                             {"previous_end", assignment.previous_end}});
}

void ProgressReporter::Committed(int64_t step, const StepReport& report) {
  const SteadyTime now = clock_.Steady();
  const double seconds = std::max(1e-6, Seconds(now - last_commit_).count());
  last_commit_ = now;
  const double rate = static_cast<double>(report.all.count) / seconds;
  const double weight = progress_.samples_per_second == 0 ? 1 : 1 - std::exp(-seconds / kSmoothingSeconds);
  progress_.samples_per_second += weight * (rate - progress_.samples_per_second);
  communication_ratio_ += weight * (std::min(1.0, CommunicationSeconds() / seconds) - communication_ratio_);
  progress_.step = step;
  // UnderWay sends them with the steps of the next window.
  if (std::exchange(progress_.steps_under_way, 0) > 0) progress_.phase_seconds = phases_.seconds();
  progress_.epoch = static_cast<double>(step) / steps_per_epoch_;
  progress_.loss = report.loss;
  progress_.learning_rate = report.learning_rate;
  progress_.gradient_norm = report.gradient_norm;
  progress_.steps_total += report.steps;
  progress_.skipped_steps_total += report.skipped;
  progress_.samples_total += report.local_count;
  progress_.global_samples_total += report.all.count;
  progress_.corrupt_records_total += report.local_corrupt;
  usage_.step_times.Add(report.steps, seconds);
  usage_.tokens_total += report.local_count * tokens_per_sample_;
  CountCorrupt(step, report);
  HistoryRecord record = RecordOf(HistoryKind::kStep);
  record.loss = report.loss;
  record.samples_per_second = progress_.samples_per_second;
  record.communication_ratio = communication_ratio_;
  protocol::Append(history_, std::move(record));
  if (Logs() && (step == progress_.total_steps || now - last_logged_ >= kLogInterval)) LogStep();
  const bool is_last = step == progress_.total_steps;  // an evaluation and a save follow
  if (first_of_round_ || is_last || now - last_sent_ >= kInterval) SendNow();
}

double ProgressReporter::CommunicationSeconds() {
  const double now = protocol::SecondsOf(phases_.seconds(), protocol::TrainPhase::kReduce);
  return now - std::exchange(communicated_seconds_, now);
}

void ProgressReporter::CountCorrupt(int64_t step, const StepReport& report) {
  corrupt_in_epoch_ += report.all.corrupt;
  const auto epoch_of = [this](int64_t at) { return std::floor(static_cast<double>(at) / steps_per_epoch_); };
  const bool ends = epoch_of(step) > epoch_of(step - report.steps) || step == progress_.total_steps;
  if (!ends) return;
  if (rank_ == 0 && corrupt_in_epoch_ > 0) {
    log::Warning("corrupt records skipped in the epoch that ends", {{"step", step},
                                                                    {"epoch", progress_.epoch},
                                                                    {"records", corrupt_in_epoch_},
                                                                    {"since_step", corrupt_since_step_}});
  }
  corrupt_in_epoch_ = 0;
  corrupt_since_step_ = step;
}

void ProgressReporter::LogStep() {
  last_logged_ = clock_.Steady();
  log::Info("training", {{"step", progress_.step},
                         {"total_steps", progress_.total_steps},
                         {"epoch", progress_.epoch},
                         {"loss", progress_.loss},
                         {"gradient_norm", progress_.gradient_norm},
                         {"learning_rate", progress_.learning_rate},
                         {"samples_per_second", progress_.samples_per_second}});
}

void ProgressReporter::Evaluated(const Evaluation& result) {
  progress_.corrupt_records_total += result.local_corrupt;
  HistoryRecord record = RecordOf(HistoryKind::kEvaluation);
  record.loss = result.loss;
  record.accuracy = result.accuracy;
  protocol::Append(history_, std::move(record));
  if (rank_ != 0) return;
  log::Info("evaluated", {{"step", progress_.step}, {"loss", result.loss}, {"accuracy", result.accuracy}});
  if (result.corrupt > 0)
    log::Warning("corrupt records skipped in the evaluation",
                 {{"step", progress_.step}, {"records", result.corrupt}});
  link_.Send(protocol::Evaluated{progress_.step, progress_.epoch, result.loss, result.accuracy});
}

HistoryRecord ProgressReporter::RecordOf(HistoryKind kind) const {
  return {.kind = kind,
          .time = clock_.Now(),
          .round = progress_.round,
          .world = world_,
          .step = progress_.step,
          .epoch = progress_.epoch};
}

// Keeps the phase times of the newest commit, because ranks are compared by their phase times per committed
// step.
void ProgressReporter::GoesOn(protocol::RankPhase phase) {
  const SteadyTime now = clock_.Steady();
  if (now - last_sign_ < kSignInterval) return;
  last_sign_ = now;
  Phase(phase);
}

void ProgressReporter::UnderWay(int64_t steps) {
  progress_.steps_under_way = steps;
  if (first_of_round_ || clock_.Steady() - last_sent_ >= kInterval) Send();
}

void ProgressReporter::SendNow() {
  progress_.phase_seconds = phases_.seconds();
  Send();
}

void ProgressReporter::Send() {
  first_of_round_ = false;
  last_sent_ = clock_.Steady();
  link_.Send(progress_);
  link_.Send(usage_);
}

}  // namespace lockstep::train
