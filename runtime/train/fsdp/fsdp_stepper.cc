#include "runtime/train/fsdp/fsdp_stepper.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/fsdp/layer_pass.h"
#include "runtime/train/step/micro_batch_source.h"
#include "runtime/train/step/not_finite.h"
#include "runtime/train/step/schedule.h"
#include "runtime/train/step/seed.h"
#include "runtime/train/step/seed_generator.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// What is summed at the end of a step: the totals, and these.
struct FsdpSum {
  enum : std::size_t { kLoss = StepTotals::kSize, kSquares, kSums };
};

}  // namespace

FsdpStepper::FsdpStepper(const StepContext& context, FsdpState& state)
    : context_(context),
      state_(state),
      micro_batch_policy_(MicroBatchPolicyOf(context.spec)),
      loader_(ReadOf(context, state.device), LoaderWorkers(context), context.spec.data.prefetch) {}

Result<void> FsdpStepper::EnterRound(std::shared_ptr<comm::Communicator> communicator) {
  communicator_ = std::move(communicator);
  LOCKSTEP_CHECK(communicator_->subgroup().world() == state_.layers().GroupOf(communicator_->world()),
                 "the subgroups of the round are the sharding groups");
  return {};
}

void FsdpStepper::Share(std::vector<double> speeds, int64_t until_step) {
  speeds_ = std::move(speeds);
  auto share_of = [&plan = context_.samples.plan(), policy = micro_batch_policy_,
                   rank = communicator_->rank(), speeds = speeds_](int64_t step) {
    return ShareOf(plan.CountOf(step), rank, speeds, policy);
  };
  loader_.Start(MicroBatchSource(std::move(share_of), state_.step, until_step));
}

Result<StepReport> FsdpStepper::Run(int64_t /*end*/, const StepCalls& calls, const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  calls.begins(state_.step, 0);
  LOCKSTEP_TRY(state_.BeginStep());
  Result<StepReport> report = Attempt(calls.requests(), stop);
  if (report.ok()) {
    context_.ledger.Commit(state_.step - 1);
  } else if (state_.layers().pending().step < 0) {
    LOCKSTEP_TRY(state_.UndoStep());
  }
  return report;
}

Result<StepReport> FsdpStepper::Attempt(const Requests& requests, const std::stop_token& stop) {
  const int64_t step = state_.step;
  const RankShare share =
      ShareOf(context_.samples.plan().CountOf(step), communicator_->rank(), speeds_, micro_batch_policy_);
  const auto passes =
      static_cast<std::size_t>(*std::max_element(share.micro_batches.begin(), share.micro_batches.end()));
  Passed passed;
  for (std::size_t i = 0; i < passes; ++i)
    LOCKSTEP_TRY(Pass(i < share.pieces.size() ? &share.pieces[i] : nullptr, passed, stop));
  if (context_.ledger.enabled())
    context_.ledger.Contribute(step,
                               context_.samples.plan().Ids(step, share.positions.begin, share.positions.end));
  StepReport report{
      .learning_rate = LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), step,
                                    context_.total_steps),
      .local_count = share.positions.size() - passed.corrupt,
      .local_corrupt = passed.corrupt};
  at::Tensor sums = at::zeros({FsdpSum::kSums}, at::kDouble);
  const std::span<double> values(sums.data_ptr<double>(), FsdpSum::kSums);
  StepTotals::Of(report.local_count, report.local_corrupt, requests).CopyTo(values);
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kReduce,
                                    [&] { return state_.layers().SumOverGroups(*communicator_); }));
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "loss and norm of the gradient", [&] {
    values[FsdpSum::kLoss] = passed.loss.Read();
    const bool is_in_first_group = communicator_->rank() < communicator_->subgroup().world();
    if (is_in_first_group) values[FsdpSum::kSquares] = state_.layers().SquaresOfGradients();
  }));
  const bool is_loss_finite = std::isfinite(values[FsdpSum::kLoss]);
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kReduce, [&]() -> Result<void> {
    LOCKSTEP_TRY(state_.layers().ShareGradients(*communicator_));
    state_.layers().AwaitEnd(report.learning_rate);
    return communicator_->SumInPlace(sums);
  }));
  return context_.phases.Time(TrainPhase::kOptimizer,
                              [&] { return End(sums, std::move(report), is_loss_finite); });
}

Result<void> FsdpStepper::Pass(const Slice* piece, Passed& passed, const std::stop_token& stop) {
  data::Batch batch;
  if (piece != nullptr) {
    LOCKSTEP_TRY(batch, context_.phases.Time(TrainPhase::kData, [&] {
      return CatchTorch(ErrorCode::kInternal, "reading data", [&]() -> Result<data::Batch> {
        LOCKSTEP_TRY(const data::Batch read, loader_.Next(stop));
        return read.To(state_.device);
      });
    }));
    passed.corrupt += batch.left_out;
  }
  const bool has_samples = piece != nullptr && batch.left_out < piece->size();
  LayerPass pass(state_.layers(), *communicator_);
  at::Tensor loss;
  const auto timed = [&](TrainPhase phase, const auto& compute) {
    const double before = pass.waited_seconds();
    Result<void> done = context_.phases.Time(phase, compute);
    context_.phases.Add(phase, before - pass.waited_seconds());
    context_.phases.Add(TrainPhase::kReduce, pass.waited_seconds() - before);
    return done;
  };
  LOCKSTEP_TRY(timed(TrainPhase::kForward, [&]() -> Result<void> {
    const at::AutoGradMode with_gradients(true);
    const models::Autocast precision(context_.spec.precision, state_.device.type());
    if (has_samples)
      SeedGenerator(MicroBatchSeed(context_.spec.seed, state_.step, piece->begin), state_.device);
    LOCKSTEP_TRY(const at::Tensor outputs,
                 pass.Forward(has_samples ? batch.inputs : at::Tensor(), /*with_gradients=*/true));
    if (!has_samples) return {};
    return CatchTorch(ErrorCode::kInternal, "forward pass", [&] {
      loss = state_.model->LossSum(outputs, batch.targets);
      passed.loss.Add(loss);
      loss = loss * state_.loss_scale.factor();
    });
  }));
  return timed(TrainPhase::kBackward, [&] {
    const at::AutoGradMode with_gradients(true);
    return pass.Backward(loss);
  });
}

Result<StepReport> FsdpStepper::End(const at::Tensor& sums, StepReport report, bool is_loss_finite) {
  const std::span<const double> values(sums.const_data_ptr<double>(), FsdpSum::kSums);
  report.all = StepTotals::From(values);
  if (report.all.count == 0) {
    state_.layers().Undo();
    return AllCorrupt("step " + std::to_string(state_.step), report.all.corrupt);
  }
  const StepEnd end{.count = static_cast<double>(report.all.count),
                    .loss = values[FsdpSum::kLoss],
                    .squares = values[FsdpSum::kSquares]};
  report.loss = end.loss / end.count;
  LOCKSTEP_TRY(const StepVerdict verdict, state_.EndStep(end));
  report.gradient_norm = verdict.gradient_norm;
  report.applied = verdict.applied;
  report.skipped = verdict.applied ? 0 : 1;
  LOCKSTEP_TRY(report.not_finite,
               not_finite_.After(state_.step, report.applied, report.loss, state_.loss_scale,
                                 [&] { return WhereNotFinite(is_loss_finite); }));
  ++state_.step;
  return report;
}

// A rank has pieces of the summed gradient only, so the gradient says at which parameter, and the losses say
// on which rank.
Result<std::string> FsdpStepper::WhereNotFinite(bool is_loss_finite) {
  std::vector<int64_t> mine = {is_loss_finite ? 0 : 1, -1};
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "locating non-finite values",
                          [&] { mine[1] = state_.layers().LastNotFinite(); }));
  LOCKSTEP_TRY(const auto rows, communicator_->AllGather(mine));
  std::vector<NotFinite> of_ranks;
  int64_t last = -1;
  for (const auto& row : rows) {
    of_ranks.push_back({.loss = row.at(0) != 0});
    last = std::max(last, row.at(1));
  }
  const std::vector<std::string> names = state_.layers().TrainedNames();
  std::string where = Describe(of_ranks, names);
  if (last >= 0) where += "; summed gradient of " + names.at(static_cast<std::size_t>(last));
  return where;
}

}  // namespace lockstep::train
