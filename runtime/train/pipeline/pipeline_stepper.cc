#include "runtime/train/pipeline/pipeline_stepper.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/mix.h"
#include "runtime/common/base/strings.h"
#include "runtime/models/precision.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/train/pipeline/activations.h"
#include "runtime/train/step/loss_total.h"
#include "runtime/train/step/micro_batch_source.h"
#include "runtime/train/step/not_finite.h"
#include "runtime/train/step/schedule.h"
#include "runtime/train/step/seed.h"
#include "runtime/train/step/seed_generator.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;
using parallel::PipelineAction;

// What is summed at the end of a step: the totals, and these.
struct StageSum {
  enum : std::size_t { kLoss = StepTotals::kSize, kSquares, kSums };
};

bool IsFirst(const StagedState& staged) { return staged.coordinate()->stage == 0; }
bool IsLast(const StagedState& staged) { return staged.coordinate()->stage + 1 == staged.mesh().stages; }
int Neighbour(const StagedState& staged, int stages_away) {
  return staged.mesh().RankOf({staged.coordinate()->pipeline, staged.coordinate()->stage + stages_away});
}

// Gives a layer and micro-batch the same random numbers on any rank.
void SeedLayer(uint64_t micro_batch_seed, int layer, at::Device device) {
  SeedGenerator(MixBits(micro_batch_seed, static_cast<uint64_t>(layer), 0), device);
}

}  // namespace

// Moves the micro-batches of one step through this rank's stage.
class PipelineStepper::Pass {
 public:
  Pass(PipelineStepper& step, const RankShare& share, const std::stop_token& stop)
      : step_(step),
        context_(step.context_),
        state_(step.state_),
        staged_(step.stages_),
        communicator_(*step.communicator_),
        share_(share),
        stop_(stop),
        inputs_(share.pieces.size()),
        outputs_(share.pieces.size()),
        gradients_(share.pieces.size()) {}

  [[nodiscard]] const LossTotal& loss() const { return loss_; }

  Result<void> Run() {
    const auto moves = parallel::OneForwardOneBackward(staged_.coordinate()->stage, staged_.mesh().stages,
                                                       static_cast<int>(share_.pieces.size()));
    for (const parallel::PipelineMove& move : moves) {
      LOCKSTEP_TRY(Make(move.action, static_cast<std::size_t>(move.micro_batch)));
    }
    return {};
  }

 private:
  Result<void> Make(PipelineAction action, std::size_t i) {
    switch (action) {
      case PipelineAction::kForward: return Forward(i);
      case PipelineAction::kBackward: return Backward(i);
      default: return context_.phases.Time(TrainPhase::kReduce, [&] { return Move(action, i); });
    }
  }

  Result<void> Move(PipelineAction action, std::size_t i) {
    switch (action) {
      case PipelineAction::kReceiveActivation: {
        LOCKSTEP_TRY(inputs_[i],
                     train::ReceiveActivation(communicator_, state_.device, Neighbour(staged_, -1)));
        return {};
      }
      case PipelineAction::kSendActivation:
        return train::SendActivation(communicator_, outputs_[i], Neighbour(staged_, 1));
      case PipelineAction::kReceiveGradient: {
        LOCKSTEP_TRY(gradients_[i], CatchTorch(ErrorCode::kInternal, "receiving a gradient", [&] {
                       return at::empty(outputs_[i].sizes(), outputs_[i].options());
                     }));
        return communicator_.Receive(gradients_[i], Neighbour(staged_, 1));
      }
      default: {
        LOCKSTEP_TRY(const at::Tensor gradient, CatchTorch(ErrorCode::kInternal, "sending a gradient", [&] {
                       const at::Tensor input = std::exchange(inputs_[i], {});
                       return (input.grad().defined() ? input.grad() : at::zeros_like(input)).contiguous();
                     }));
        return communicator_.Send(gradient, Neighbour(staged_, -1));
      }
    }
  }

  // Samples and targets, if the stage needs either.
  Result<data::Batch> NextBatch() {
    if (!IsFirst(staged_) && !IsLast(staged_)) return data::Batch{};
    return context_.phases.Time(TrainPhase::kData, [&] {
      return CatchTorch(ErrorCode::kInternal, "reading data", [&]() -> Result<data::Batch> {
        LOCKSTEP_TRY(const data::Batch batch, step_.loader_.Next(stop_));
        return batch.To(state_.device);
      });
    });
  }

  Result<void> Forward(std::size_t i) {
    LOCKSTEP_TRY(const data::Batch batch, NextBatch());
    if (IsFirst(staged_)) inputs_[i] = batch.inputs;
    return context_.phases.Time(TrainPhase::kForward, [&] {
      return CatchTorch(ErrorCode::kInternal, "forward pass", [&] { ForwardLayers(i, batch); });
    });
  }

  void ForwardLayers(std::size_t i, const data::Batch& batch) {
    const at::AutoGradMode with_gradients(true);
    const models::Autocast precision(context_.spec.precision, state_.device.type());
    if (!IsFirst(staged_) && at::isFloatingType(inputs_[i].scalar_type())) inputs_[i].requires_grad_(true);
    const uint64_t seed = MicroBatchSeed(context_.spec.seed, state_.step, share_.pieces[i].begin);
    at::Tensor x = inputs_[i];
    for (int layer = staged_.range().begin; layer < staged_.range().end; ++layer) {
      SeedLayer(seed, layer, state_.device);
      x = staged_.layer(layer).forward(x);
    }
    if (IsLast(staged_)) {
      x = state_.model->LossSum(x, batch.targets);
      loss_.Add(x);
      x = x * state_.loss_scale.factor();
    }
    outputs_[i] = x;
  }

  Result<void> Backward(std::size_t i) {
    const at::Tensor output = std::exchange(outputs_[i], {});
    const at::Tensor gradient = std::exchange(gradients_[i], {});
    return context_.phases.Time(TrainPhase::kBackward, [&] {
      return CatchTorch(ErrorCode::kInternal, "backward pass", [&] {
        const at::AutoGradMode with_gradients(true);
        if (output.requires_grad()) torch::autograd::backward({output}, {gradient});
      });
    });
  }

  PipelineStepper& step_;
  const StepContext& context_;
  const PipelineState& state_;
  const StagedState& staged_;
  Communicator& communicator_;
  const RankShare& share_;
  const std::stop_token& stop_;
  std::vector<at::Tensor> inputs_;     // of the micro-batches in progress
  std::vector<at::Tensor> outputs_;    // in the last stage: the loss
  std::vector<at::Tensor> gradients_;  // with respect to the outputs
  LossTotal loss_;
};

PipelineStepper::PipelineStepper(const StepContext& context, PipelineState& state)
    : context_(context),
      state_(state),
      stages_(state.stages()),
      micro_batch_policy_(MicroBatchPolicyOf(context.spec)),
      loader_(ReadOf(context, state.device), LoaderWorkers(context), context.spec.data.prefetch) {}

std::function<RankShare(int64_t step)> PipelineStepper::ShareOfPipeline() const {
  if (!stages_.coordinate().has_value()) return [](int64_t) { return RankShare{}; };
  return [&plan = context_.samples.plan(), policy = micro_batch_policy_,
          pipeline = stages_.coordinate()->pipeline,
          speeds = std::vector<double>(static_cast<std::size_t>(stages_.mesh().pipelines), 1)](int64_t step) {
    return ShareOf(plan.CountOf(step), pipeline, speeds, policy);
  };
}

Result<void> PipelineStepper::EnterRound(std::shared_ptr<Communicator> communicator) {
  communicator_ = std::move(communicator);
  return {};
}

void PipelineStepper::Share(std::vector<double> /*speeds*/, int64_t until_step) {
  const bool reads = stages_.coordinate().has_value() && (IsFirst(stages_) || IsLast(stages_));
  if (!reads) return loader_.Start([](int64_t) { return std::optional<data::Draw>(); });
  loader_.Start(MicroBatchSource(ShareOfPipeline(), state_.step, until_step));
}

Result<StepReport> PipelineStepper::Run(int64_t /*end*/, const StepCalls& calls,
                                        const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  calls.begins(state_.step, 0);
  LOCKSTEP_TRY(stages_.BeginStep());
  Result<StepReport> report = Attempt(calls.requests(), stop);
  if (report.ok()) {
    context_.ledger.Commit(state_.step - 1);
  } else if (!stages_.awaits_end()) {
    stages_.Undo();
  }
  return report;
}

Result<StepReport> PipelineStepper::Attempt(const Requests& requests, const std::stop_token& stop) {
  const int64_t step = state_.step;
  const RankShare share = ShareOfPipeline()(step);
  Pass pass(*this, share, stop);
  if (stages_.coordinate().has_value()) LOCKSTEP_TRY(pass.Run());
  LOCKSTEP_TRY(
      context_.phases.Time(TrainPhase::kReduce, [&] { return stages_.SumGradients(*communicator_); }));
  // One rank per pipeline counts the pipeline's samples.
  const bool counts_samples = stages_.coordinate().has_value() && IsFirst(stages_);
  if (counts_samples && context_.ledger.enabled())
    context_.ledger.Contribute(step,
                               context_.samples.plan().Ids(step, share.positions.begin, share.positions.end));
  at::Tensor sums = at::zeros({StageSum::kSums}, at::kDouble);
  const std::span<double> values(sums.data_ptr<double>(), StageSum::kSums);
  const int64_t counted = counts_samples ? share.positions.size() : 0;
  StepTotals::Of(counted, 0, requests).CopyTo(values);
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "loss and norm of the gradient", [&] {
    values[StageSum::kLoss] = pass.loss().Read();
    values[StageSum::kSquares] = stages_.SquaresOnce();
  }));
  const bool is_loss_finite = std::isfinite(values[StageSum::kLoss]);
  stages_.AwaitEnd(
      communicator_->place().round,
      LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), step, context_.total_steps));
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kReduce, [&] { return communicator_->SumInPlace(sums); }));
  return context_.phases.Time(TrainPhase::kOptimizer, [&] { return End(sums, counted, is_loss_finite); });
}

Result<StepReport> PipelineStepper::End(const at::Tensor& sums, int64_t local_count, bool is_loss_finite) {
  const std::span<const double> values(sums.const_data_ptr<double>(), StageSum::kSums);
  const auto totals = StepTotals::From(values);
  const StepEnd end{.count = static_cast<double>(totals.count),
                    .loss = values[StageSum::kLoss],
                    .squares = values[StageSum::kSquares]};
  StepReport report{
      .loss = end.loss / end.count,
      .learning_rate = LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), state_.step,
                                    context_.total_steps),
      .all = totals,
      .local_count = local_count};
  LOCKSTEP_TRY(const StepVerdict verdict, stages_.EndStep(end, state_.loss_scale.factor()));
  report.gradient_norm = verdict.gradient_norm;
  report.applied = verdict.applied;
  report.skipped = verdict.applied ? 0 : 1;
  LOCKSTEP_TRY(report.not_finite,
               not_finite_.After(state_.step, report.applied, report.loss, state_.loss_scale,
                                 [&] { return WhereNotFinite(is_loss_finite); }));
  ++state_.step;
  return report;
}

Result<std::string> PipelineStepper::WhereNotFinite(bool is_loss_finite) const {
  std::vector<int64_t> mine = {is_loss_finite ? 0 : 1, -1};
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "locating non-finite values",
                          [&] { mine[1] = stages_.LastNotFinite(); }));
  LOCKSTEP_TRY(const auto rows, communicator_->AllGather(mine));
  std::vector<NotFinite> of_ranks;
  of_ranks.reserve(rows.size());
  for (const auto& row : rows) of_ranks.push_back({row.at(0) != 0, row.at(1)});
  return Describe(of_ranks, stages_.TrainedNames());
}

Result<at::Tensor> ForwardThroughStage(Communicator& communicator, const StagedState& staged,
                                       const at::Tensor& inputs) {
  at::Tensor x = inputs;
  if (!IsFirst(staged)) {
    LOCKSTEP_TRY(x, ReceiveActivation(communicator, staged.device(), Neighbour(staged, -1)));
  }
  if (x.defined()) {
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "evaluation", [&] {
      for (int layer = staged.range().begin; layer < staged.range().end; ++layer)
        x = staged.layer(layer).forward(x);
    }));
  }
  if (IsLast(staged)) return x;
  LOCKSTEP_TRY(x.defined() ? SendActivation(communicator, x, Neighbour(staged, 1))
                           : SendNoActivation(communicator, Neighbour(staged, 1)));
  return x;
}

}  // namespace lockstep::train
