#include "runtime/train/local_sgd/local_sgd.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/train/local_sgd/average.h"
#include "runtime/train/local_sgd/outer_step.h"
#include "runtime/train/local_sgd/window_claims.h"
#include "runtime/train/step/schedule.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// The row that each rank contributes: the totals, and these.
struct Row {
  enum : std::size_t {
    kApplied = StepTotals::kSize,
    kLossSum,
    kNormSum,
    kScale,
    kGoodSteps,
    kRate,
    kAsked,
    kRowSize
  };
};

void LogSkipped(int64_t step, const StepReport& report) {
  if (report.applied) return;
  log::Warning("step skipped: not finite",
               {{"step", step}, {"loss", report.loss}, {"where", report.not_finite}});
}

}  // namespace

void LocalSgd::Tally::Add(const StepReport& step) {
  samples += step.local_count;
  corrupt += step.local_corrupt;
  skipped += step.skipped;
  if (!step.applied) return;
  applied_samples += step.local_count;
  loss_sum += step.loss * static_cast<double>(step.local_count);
  gradient_norm_sum += step.gradient_norm * static_cast<double>(step.local_count);
}

void LocalSgd::EnterRound(const comm::Communicator& communicator) {
  if (context_.spec.strategy != api::Strategy::kAsync) return;
  claiming_ = Claiming{.counter = std::make_shared<comm::SharedCounter>(communicator.store(), "claims"),
                       .rank = communicator.rank(),
                       .world = communicator.world(),
                       .rates = std::vector<double>(static_cast<std::size_t>(communicator.world()), 1)};
}

Result<StepReport> LocalSgd::Run(comm::Communicator& communicator, parallel::Strategy& strategy, int64_t end,
                                 const StepCalls& calls, const std::stop_token& stop) {
  const int64_t begin = state_.step;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "copying the state at the beginning of the window",
                          [this] { Remember(); }));
  Result<StepReport> report = RunOrFail(communicator, strategy, end, calls, stop);
  if (!report.ok()) {
    GoBack(begin);
    return report;
  }
  report->steps = end - begin;
  report->learning_rate = LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), end - 1,
                                       context_.total_steps);
  for (int64_t step = begin; step < end; ++step) context_.ledger.Commit(step);
  return report;
}

void LocalSgd::Remember() {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> tensors = state_.Tensors();
  if (before_.empty()) {
    std::vector<at::Tensor> made;  // assigned all at once, because memory may run out
    made.reserve(tensors.size());
    for (const NamedTensor& named : tensors) made.push_back(at::empty_like(named.tensor));
    before_ = std::move(made);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) before_[i].copy_(tensors[i].tensor);
}

void LocalSgd::GoBack(int64_t step) {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> tensors = state_.Tensors();
  const Result<void> done =
      CatchTorch(ErrorCode::kInternal, "restoring the state at the beginning of the window", [&] {
        for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].tensor.copy_(before_[i]);
      });
  // A half-taken window must not be used as a state, so this process ends; its successor gets the state from
  // a peer.
  LOCKSTEP_CHECK(done.ok(), done.error().message);
  state_.step = step;
  runner_.Undone();
}

Result<StepReport> LocalSgd::RunOrFail(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       int64_t end, const StepCalls& calls, const std::stop_token& stop) {
  LOCKSTEP_TRY(const Tally mine, claiming_.has_value() ? TakeClaims(communicator, strategy, end, calls, stop)
                                                       : TakeShares(strategy, end, calls, stop));
  calls.waits();
  return SynchronizeWindow(communicator, mine, calls.requests());
}

Result<LocalSgd::Tally> LocalSgd::TakeShares(parallel::Strategy& strategy, int64_t end,
                                             const StepCalls& calls, const std::stop_token& stop) {
  const int64_t begin = state_.step;
  Tally mine;
  for (int64_t step = begin; step < end; ++step) {
    calls.begins(step, step - begin);
    if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "the round ended inside a window"};
    LOCKSTEP_TRY(const StepReport report, runner_.RunAlone(strategy, stop));
    mine.Add(report);
    LogSkipped(step, report);
  }
  return mine;
}

Result<LocalSgd::Tally> LocalSgd::TakeClaims(comm::Communicator& communicator, parallel::Strategy& strategy,
                                             int64_t end, const StepCalls& calls,
                                             const std::stop_token& stop) {
  std::vector<int64_t> counts;
  for (int64_t step = state_.step; step < end; ++step)
    counts.push_back(context_.samples.plan().CountOf(step));
  Tally mine{.whole = std::accumulate(counts.begin(), counts.end(), int64_t{0})};
  // Shared, because the loader may still be claiming when this function returns an error.
  const auto claims = std::make_shared<WindowClaims>(
      WindowClaims::Terms{.counter = claiming_->counter,
                          .first = claiming_->first,
                          .claims = ClaimsOf(state_.step, counts, claiming_->world),
                          .rates = claiming_->rates,
                          .rank = claiming_->rank,
                          .micro_batch = context_.spec.micro_batch_size});
  const std::stop_callback when_the_round_ends(stop, [&] { claims->Stop(); });
  runner_.Follow(claiming_->rank, [claims](int64_t) { return claims->NextDraw(); });
  const double seconds_before = WorkSeconds();
  const auto take = [&]() -> Result<void> {
    for (int64_t taken = 0;; ++taken) {
      LOCKSTEP_TRY(const std::optional<Claim> claim, context_.phases.Time(TrainPhase::kData, [&] {
        // If no answer comes, rank 0 is responsible.
        const comm::Communicator::PeerWait wait(communicator);
        return claims->Next();
      }));
      if (!claim.has_value()) {
        if (taken > 0)
          mine.rate = static_cast<double>(taken) / std::max(1e-9, WorkSeconds() - seconds_before);
        return {};
      }
      calls.begins(claim->step, taken);
      LOCKSTEP_TRY(const StepReport report, runner_.RunClaim(strategy, claim->step, claim->positions, stop));
      mine.Add(report);
      LogSkipped(claim->step, report);
    }
  };
  const Result<void> done = take();
  claims->Stop();
  if (!done.ok()) return done.error();
  mine.asked = claims->asked();
  state_.step = end;
  return mine;
}

// Computation time, without waiting for other ranks.
double LocalSgd::WorkSeconds() const {
  const auto& seconds = context_.phases.seconds();
  return protocol::ComputeSeconds(seconds) + protocol::SecondsOf(seconds, TrainPhase::kOptimizer);
}

Result<StepReport> LocalSgd::SynchronizeWindow(comm::Communicator& communicator, const Tally& mine,
                                               const Requests& requests) {
  LocalSgdState& state = state_;
  std::vector<int64_t> row(Row::kRowSize);
  StepTotals::Of(mine.samples, mine.corrupt, requests).CopyTo(std::span(row));
  row[Row::kApplied] = mine.applied_samples;
  row[Row::kLossSum] = std::bit_cast<int64_t>(mine.loss_sum);
  row[Row::kNormSum] = std::bit_cast<int64_t>(mine.gradient_norm_sum);
  row[Row::kScale] = std::bit_cast<int64_t>(state.loss_scale.factor());
  row[Row::kGoodSteps] = state.loss_scale.good_steps();
  row[Row::kRate] = std::bit_cast<int64_t>(mine.rate);
  row[Row::kAsked] = mine.asked;
  std::vector<std::vector<int64_t>> rows;
  LOCKSTEP_TRY(rows, context_.phases.Time(TrainPhase::kReduce, [&] { return communicator.AllGather(row); }));

  StepReport report{.local_count = mine.samples, .local_corrupt = mine.corrupt, .skipped = mine.skipped};
  std::vector<double> rates;
  int64_t asked = 0;
  int64_t applied = 0;
  double lowest_scale = std::numeric_limits<double>::infinity();
  int64_t fewest_good_steps = std::numeric_limits<int64_t>::max();
  for (const auto& of_rank : rows) {  // in rank order, so that sums are the same on each rank
    report.all += StepTotals::From(std::span(of_rank));
    applied += of_rank.at(Row::kApplied);
    report.loss += std::bit_cast<double>(of_rank.at(Row::kLossSum));
    report.gradient_norm += std::bit_cast<double>(of_rank.at(Row::kNormSum));
    lowest_scale = std::min(lowest_scale, std::bit_cast<double>(of_rank.at(Row::kScale)));
    fewest_good_steps = std::min(fewest_good_steps, of_rank.at(Row::kGoodSteps));
    rates.push_back(std::bit_cast<double>(of_rank.at(Row::kRate)));
    asked += of_rank.at(Row::kAsked);
  }
  if (claiming_.has_value()) {
    const int64_t claimed = report.all.count + report.all.corrupt;
    LOCKSTEP_CHECK(claimed == mine.whole, "of " + std::to_string(mine.whole) + " samples " +
                                              std::to_string(claimed) + " were claimed");
    // The rates of a round's first window are placeholders.
    claiming_->rates =
        RatesAfter(claiming_->first == 0 ? std::span<const double>() : claiming_->rates, rates);
    claiming_->first += asked;
  }
  if (report.all.count == 0)
    return AllCorrupt("the window up to step " + std::to_string(state.step - 1), report.all.corrupt);
  const auto divisor = static_cast<double>(std::max<int64_t>(1, applied));  // 0 if all were skipped
  report.loss /= divisor;
  report.gradient_norm /= divisor;
  const double weight = static_cast<double>(mine.samples) / static_cast<double>(report.all.count);
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kReduce, [&] { return Average(communicator, weight); }));
  // All sums are known to be good here, so no failure of another rank can undo what follows.
  state.loss_scale.Set(lowest_scale, fewest_good_steps);
  if (context_.spec.sync.outer.has_value()) {
    LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kOptimizer, [&] {
      return CatchTorch(ErrorCode::kInternal, "outer step", [this] { TakeOuterStep(); });
    }));
  }
  return report;
}

// The outer momentum is not averaged, because steps of a single rank do not change it.
Result<void> LocalSgd::Average(comm::Communicator& communicator, double weight) {
  const LocalSgdState& state = state_;
  std::vector<ToAverage> all;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    if (state.parameters[i].tensor.requires_grad()) all.push_back({state.parameters[i].tensor, before_[i]});
  }
  for (const NamedTensor& named : state.buffers) all.push_back({named.tensor, {}});
  for (const NamedTensor& named : state.optimizer().state()) all.push_back({named.tensor, {}});
  return AverageInPlace(communicator, all, weight);
}

void LocalSgd::TakeOuterStep() {
  const LocalSgdState& state = state_;
  std::vector<at::Tensor> before;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    if (state.parameters[i].tensor.requires_grad()) before.push_back(before_[i]);
  }
  OuterStep(*context_.spec.sync.outer, before, state.trained(), state.outer_momentum());
}

}  // namespace lockstep::train
