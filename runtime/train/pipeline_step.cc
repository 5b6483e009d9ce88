#include "runtime/train/pipeline_step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/strings.h"
#include "runtime/models/precision.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/train/activations.h"
#include "runtime/train/micro_batch_source.h"
#include "runtime/train/not_finite.h"
#include "runtime/train/schedule.h"
#include "runtime/train/seed.h"

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
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(MixBits(micro_batch_seed, static_cast<uint64_t>(layer), 0));
}

// Returns the share of the rank's pipeline as a function of the step, or no share for an idle rank. Captures
// what it needs of the round, because the loader's threads may call it after the next round has begun.
std::function<RankShare(int64_t)> ShareOfPipeline(const StepContext& context,
                                                  const MicroBatchPolicy& policy) {
  const StagedState& staged = *context.state.staged;
  if (!staged.coordinate().has_value()) return [](int64_t) { return RankShare{}; };
  return [&plan = context.samples.plan(), policy, pipeline = staged.coordinate()->pipeline,
          speeds = std::vector<double>(static_cast<std::size_t>(staged.mesh().pipelines), 1)](int64_t step) {
    return ShareOf(plan.CountOf(step), pipeline, speeds, policy);
  };
}

}  // namespace

// Moves the micro-batches of one step through this rank's stage.
class PipelineStep::Pass {
 public:
  Pass(PipelineStep& step, Communicator& communicator, const RankShare& share, const std::stop_token& stop)
      : step_(step),
        context_(step.context_),
        staged_(*context_.state.staged),
        communicator_(communicator),
        share_(share),
        stop_(stop),
        inputs_(share.pieces.size()),
        outputs_(share.pieces.size()),
        gradients_(share.pieces.size()) {}

  [[nodiscard]] double loss() const { return loss_; }

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
      default: return context_.phases.Time("reduce", [&] { return Move(action, i); });
    }
  }

  Result<void> Move(PipelineAction action, std::size_t i) {
    switch (action) {
      case PipelineAction::kReceiveActivation: {
        LOCKSTEP_TRY(inputs_[i],
                     train::ReceiveActivation(communicator_, context_.state.device, Neighbour(staged_, -1)));
        return {};
      }
      case PipelineAction::kSendActivation:
        return train::SendActivation(communicator_, outputs_[i], Neighbour(staged_, 1));
      case PipelineAction::kReceiveGradient:
        LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "receiving a gradient", [&] {
          gradients_[i] = at::empty(outputs_[i].sizes(), outputs_[i].options());
        }));
        return communicator_.Receive(gradients_[i], Neighbour(staged_, 1));
      default: {
        at::Tensor gradient;
        LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "sending a gradient", [&] {
          const at::Tensor input = std::exchange(inputs_[i], {});
          gradient = (input.grad().defined() ? input.grad() : at::zeros_like(input)).contiguous();
        }));
        return communicator_.Send(gradient, Neighbour(staged_, -1));
      }
    }
  }

  // Samples and targets, if the stage needs either.
  Result<data::Batch> NextBatch() {
    if (!IsFirst(staged_) && !IsLast(staged_)) return data::Batch{};
    Result<data::Batch> batch = Error{};
    LOCKSTEP_TRY(context_.phases.Time("data", [&] {
      return CatchTorch(ErrorCode::kInternal, "reading data", [&] {
        batch = step_.loader_.Next(stop_);
        if (batch.ok()) batch = batch->To(context_.state.device);
      });
    }));
    return batch;
  }

  Result<void> Forward(std::size_t i) {
    LOCKSTEP_TRY(const data::Batch batch, NextBatch());
    if (IsFirst(staged_)) inputs_[i] = batch.inputs;
    return context_.phases.Time("forward", [&] {
      return CatchTorch(ErrorCode::kInternal, "forward pass", [&] { ForwardLayers(i, batch); });
    });
  }

  void ForwardLayers(std::size_t i, const data::Batch& batch) {
    const at::AutoGradMode with_gradients(true);
    const models::Autocast precision(context_.spec.precision, context_.state.device.type());
    if (!IsFirst(staged_) && at::isFloatingType(inputs_[i].scalar_type())) inputs_[i].requires_grad_(true);
    const uint64_t seed = MicroBatchSeed(context_.spec.seed, context_.state.step, share_.pieces[i].begin);
    at::Tensor x = inputs_[i];
    for (int layer = staged_.range().begin; layer < staged_.range().end; ++layer) {
      SeedLayer(seed, layer, context_.state.device);
      x = staged_.layer(layer).forward(x);
    }
    if (IsLast(staged_)) {
      x = context_.state.model->LossSum(x, batch.targets);
      loss_ += x.item<double>();
      x = x * context_.state.loss_scale.factor();
    }
    outputs_[i] = x;
  }

  Result<void> Backward(std::size_t i) {
    const at::Tensor output = std::exchange(outputs_[i], {});
    const at::Tensor gradient = std::exchange(gradients_[i], {});
    return context_.phases.Time("backward", [&] {
      return CatchTorch(ErrorCode::kInternal, "backward pass", [&] {
        const at::AutoGradMode with_gradients(true);
        if (output.requires_grad()) torch::autograd::backward({output}, {gradient});
      });
    });
  }

  PipelineStep& step_;
  const StepContext& context_;
  const StagedState& staged_;
  Communicator& communicator_;
  const RankShare& share_;
  const std::stop_token& stop_;
  std::vector<at::Tensor> inputs_;     // of the micro-batches in progress
  std::vector<at::Tensor> outputs_;    // in the last stage: the loss
  std::vector<at::Tensor> gradients_;  // with respect to the outputs
  double loss_ = 0;
};

PipelineStep::PipelineStep(const StepContext& context)
    : context_(context),
      micro_batch_policy_(MicroBatchPolicyOf(context.spec)),
      loader_(ReadOf(context), LoaderWorkers(context), context.spec.data.prefetch) {}

void PipelineStep::EnterRound() {
  const StagedState& staged = *context_.state.staged;
  const bool reads = staged.coordinate().has_value() && (IsFirst(staged) || IsLast(staged));
  if (!reads) return loader_.Start([](int64_t) { return std::optional<data::Draw>(); });
  loader_.Start(MicroBatchSource(ShareOfPipeline(context_, micro_batch_policy_), context_.state.step,
                                 context_.total_steps));
}

Result<StepReport> PipelineStep::Run(Communicator& communicator, const Requests& requests,
                                     const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  LOCKSTEP_TRY(context_.state.staged->BeginStep());
  Result<StepReport> report = Attempt(communicator, requests, stop);
  if (report.ok()) {
    context_.ledger.Commit(context_.state.step - 1);
  } else if (!context_.state.staged->awaits_end()) {
    context_.state.staged->Undo();
  }
  return report;
}

Result<StepReport> PipelineStep::Attempt(Communicator& communicator, const Requests& requests,
                                         const std::stop_token& stop) {
  StagedState& staged = *context_.state.staged;
  const int64_t step = context_.state.step;
  const RankShare share = ShareOfPipeline(context_, micro_batch_policy_)(step);
  Pass pass(*this, communicator, share, stop);
  if (staged.coordinate().has_value()) LOCKSTEP_TRY(pass.Run());
  LOCKSTEP_TRY(context_.phases.Time("reduce", [&] { return staged.SumGradients(communicator); }));
  // One rank per pipeline counts the pipeline's samples.
  const bool counts_samples = staged.coordinate().has_value() && IsFirst(staged);
  if (counts_samples && context_.ledger.enabled())
    context_.ledger.Contribute(step,
                               context_.samples.plan().Ids(step, share.positions.begin, share.positions.end));
  at::Tensor sums = at::zeros({StageSum::kSums}, at::kDouble);
  const std::span<double> values(sums.data_ptr<double>(), StageSum::kSums);
  const int64_t counted = counts_samples ? share.positions.size() : 0;
  StepTotals::Of(counted, 0, requests).CopyTo(values);
  values[StageSum::kLoss] = pass.loss();
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "norm of the gradient",
                          [&] { values[StageSum::kSquares] = staged.SquaresOnce(); }));
  staged.AwaitEnd(
      communicator.place().round,
      LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), step, context_.total_steps));
  LOCKSTEP_TRY(context_.phases.Time("reduce", [&] { return communicator.SumInPlace(sums); }));
  return context_.phases.Time("optimizer",
                              [&] { return End(communicator, sums, counted, std::isfinite(pass.loss())); });
}

Result<StepReport> PipelineStep::End(Communicator& communicator, const at::Tensor& sums, int64_t local_count,
                                     bool is_loss_finite) {
  TrainingState& state = context_.state;
  const std::span<const double> values(sums.const_data_ptr<double>(), StageSum::kSums);
  const auto totals = StepTotals::From(values);
  const StepEnd end{.count = static_cast<double>(totals.count),
                    .loss = values[StageSum::kLoss],
                    .squares = values[StageSum::kSquares]};
  StepReport report{
      .loss = end.loss / end.count,
      .learning_rate = LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), state.step,
                                    context_.total_steps),
      .all = totals,
      .local_count = local_count};
  LOCKSTEP_TRY(const StepVerdict verdict, state.staged->EndStep(end, state.loss_scale.factor()));
  report.gradient_norm = verdict.gradient_norm;
  report.applied = verdict.applied;
  report.skipped = verdict.applied ? 0 : 1;
  LOCKSTEP_TRY(report.not_finite,
               not_finite_.After(state.step, report.applied, report.loss, state.loss_scale,
                                 [&] { return WhereNotFinite(communicator, is_loss_finite); }));
  ++state.step;
  return report;
}

Result<std::string> PipelineStep::WhereNotFinite(Communicator& communicator, bool is_loss_finite) const {
  std::vector<int64_t> mine = {is_loss_finite ? 0 : 1, -1};
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "locating non-finite values",
                          [&] { mine[1] = context_.state.staged->LastNotFinite(); }));
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine));
  std::vector<NotFinite> of_ranks;
  of_ranks.reserve(rows.size());
  for (const auto& row : rows) of_ranks.push_back({row.at(0) != 0, row.at(1)});
  return Describe(of_ranks, context_.state.staged->TrainedNames());
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
