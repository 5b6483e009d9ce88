#include "runtime/train/loop/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {
namespace {

// Copying numbers takes less time than waking a thread for it.
int WorkersFor(const api::TrainingSpec& spec, const data::Dataset& test) {
  return test.is_in_memory() ? 0 : std::max(1, spec.data.workers);
}

data::Loader::Read ReaderOf(const data::Dataset& test, bool pins) {
  return [&test, pins](const data::Draw& draw) {
    std::vector<int64_t> ids(static_cast<std::size_t>(draw.end - draw.begin));
    std::iota(ids.begin(), ids.end(), draw.begin);
    data::Batch batch = test.Get(ids).WithoutCorrupt();
    return pins ? batch.Pinned() : batch;
  };
}

// Sets the weights to their averages. Appends what they were before.
void UseAverages(std::vector<WeightAndAverage>& averages, std::vector<at::Tensor>& weights) {
  weights.reserve(averages.size());
  for (WeightAndAverage& each : averages) {
    weights.push_back(each.weight.clone());
    each.weight.copy_(each.average);
    each.average.reset();
  }
}

}  // namespace

Evaluator::Evaluator(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test)
    : spec_(spec),
      state_(state),
      test_(test),
      loader_(ReaderOf(test, !state.device.is_cpu()), WorkersFor(spec, test), spec.data.prefetch) {}

Result<Evaluation> Evaluator::Run(comm::Communicator& communicator, std::span<const double> speeds,
                                  const std::function<bool()>& leave, const std::stop_token& stop) {
  LOCKSTEP_TRY(state_.SyncBuffers(communicator));
  LOCKSTEP_TRY(std::vector<WeightAndAverage> averages, state_.Averages(communicator));
  std::vector<at::Tensor> weights;
  const Result<Sums> own = comm::CatchTorch(ErrorCode::kInternal, "evaluation", [&] {
    const at::NoGradGuard no_grad;
    UseAverages(averages, weights);
    state_.model->eval();
    return RunPart(state_.PartOfEvaluation(test_.size(), communicator.rank(), speeds), communicator, leave,
                   stop);
  });
  // A process that fails here has the averages as its weights, so it must not train with them: kDeviceFault
  // ends it, and another takes its place.
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kDeviceFault, "taking the weights back", [&] {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) averages[i].weight.copy_(weights[i]);
  }));
  state_.model->train();
  loader_.Start({});  // frees the memory of prefetched batches
  LOCKSTEP_TRY(const Sums sums, own);
  at::Tensor total =
      at::tensor({sums.loss, sums.correct, sums.count, sums.leaving, sums.corrupt}, at::kDouble);
  LOCKSTEP_TRY(communicator.SumInPlace(total));
  const double count = total[2].item<double>();
  const auto corrupt = static_cast<int64_t>(total[4].item<double>());
  const bool is_complete = total[3].item<double>() == 0;
  if (is_complete && count == 0 && corrupt > 0) return AllCorrupt("the evaluation", corrupt);
  return Evaluation{.loss = total[0].item<double>() / count,
                    .accuracy = total[1].item<double>() / count,
                    .corrupt = corrupt,
                    .local_corrupt = static_cast<int64_t>(sums.corrupt),
                    .complete = is_complete};
}

Result<Evaluator::Sums> Evaluator::RunPart(const PartToEvaluate& part, comm::Communicator& communicator,
                                           const std::function<bool()>& leave, const std::stop_token& stop) {
  const models::Autocast precision(spec_.precision, state_.device.type());
  Sums sums;
  std::vector<Slice> pieces = part.reads ? Load(part.samples) : Batches(part.samples);
  const std::size_t own = pieces.size();
  if (part.turns.has_value()) pieces.resize(static_cast<std::size_t>(*part.turns));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Slice& piece = pieces[i];
    if (communicator.aborted()) break;
    data::Batch batch;
    const bool is_to_leave = leave();
    if (part.decides && is_to_leave) {
      sums.leaving = 1;
    } else if (part.reads && i < own) {
      LOCKSTEP_TRY(batch, Next(stop));
      sums.corrupt += static_cast<double>(batch.left_out);
      if (batch.left_out == piece.size() && !part.turns.has_value()) continue;
    } else if (part.turns.has_value()) {
      batch.inputs = at::empty({0});
    }
    LOCKSTEP_TRY(const at::Tensor outputs, state_.Evaluate(communicator, batch.inputs));
    if (!outputs.defined()) break;
    if (!part.scores || batch.left_out == piece.size()) continue;
    sums.loss += state_.model->LossSum(outputs, batch.targets).item<double>();
    sums.correct += state_.model->CountRight(outputs, batch.targets);
    sums.count += static_cast<double>(piece.size() - batch.left_out);
  }
  return sums;
}

std::vector<Slice> Evaluator::Batches(Slice share) const {
  return MicroBatches(share, spec_.evaluation->batch_size);
}

std::vector<Slice> Evaluator::Load(Slice share) {
  std::vector<Slice> batches = Batches(share);
  loader_.Start([batches](int64_t n) -> std::optional<data::Draw> {
    if (n >= static_cast<int64_t>(batches.size())) return std::nullopt;
    const Slice& batch = batches[static_cast<std::size_t>(n)];
    return data::Draw{.begin = batch.begin, .end = batch.end};
  });
  return batches;
}

Result<data::Batch> Evaluator::Next(const std::stop_token& stop) {
  LOCKSTEP_TRY(const data::Batch batch, loader_.Next(stop));
  return batch.To(state_.device);
}

}  // namespace lockstep::train
