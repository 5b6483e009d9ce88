#include "runtime/train/evaluation.h"

#include <ATen/ATen.h>

#include <numeric>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/batch_math.h"
#include "runtime/train/pipeline_step.h"
#include "runtime/train/step.h"
#include "runtime/train/sync.h"

namespace lockstep::train {
namespace {

struct Sums {
  double loss = 0;
  double correct = 0;
  double count = 0;
  double leaving = 0;
  double corrupt = 0;
};

// This rank's share. Stops between two batches when the round is over or somebody must leave.
Sums EvaluateShare(const api::TrainingSpec& spec, const TrainingState& state, const data::Dataset& test,
                   Slice share, const comm::Communicator& communicator, const std::function<bool()>& leave) {
  const models::Autocast precision(spec.precision, state.device.type());
  Model& model = *state.model;
  Sums sums;
  for (const Slice& piece : MicroBatches(share, spec.evaluation->batch_size)) {
    if (communicator.aborted()) break;
    if (leave()) {
      sums.leaving = 1;
      break;
    }
    std::vector<int64_t> ids(static_cast<std::size_t>(piece.size()));
    std::iota(ids.begin(), ids.end(), piece.begin);
    const data::Batch batch = test.Get(ids).WithoutCorrupt().To(state.device);
    sums.corrupt += static_cast<double>(batch.left_out);
    if (batch.left_out == piece.size()) continue;
    const at::Tensor logits = model.Forward(batch.inputs);
    sums.loss += model.LossSum(logits, batch.targets).item<double>();
    sums.correct += model.CountRight(logits, batch.targets);
    sums.count += static_cast<double>(piece.size() - batch.left_out);
  }
  return sums;
}

// That of this rank's pipeline. Its first stage says when all stop early, so the others need not agree.
Result<Sums> EvaluateInPipeline(const api::TrainingSpec& spec, const TrainingState& state,
                                const data::Dataset& test, comm::Communicator& communicator,
                                const std::function<bool()>& leave) {
  Sums sums;
  const StagedState& staged = *state.staged;
  if (!staged.place().has_value()) return sums;
  const models::Autocast precision(spec.precision, state.device.type());
  const bool is_first = staged.place()->stage == 0;
  const bool is_last = staged.place()->stage + 1 == staged.mesh().stages;
  const Slice share = SliceOf(test.size(), staged.place()->pipeline, staged.mesh().pipelines);
  for (const Slice& piece : MicroBatches(share, spec.evaluation->batch_size)) {
    data::Batch batch;
    if (is_first && leave()) {
      sums.leaving = 1;
    } else if (is_first || is_last) {
      std::vector<int64_t> ids(static_cast<std::size_t>(piece.size()));
      std::iota(ids.begin(), ids.end(), piece.begin);
      batch = test.Get(ids).To(state.device);
    }
    LOCKSTEP_TRY(const at::Tensor outputs, ForwardThroughStage(communicator, staged, batch.inputs));
    if (!outputs.defined()) break;
    if (!is_last) continue;
    sums.loss += state.model->LossSum(outputs, batch.targets).item<double>();
    sums.correct += state.model->CountRight(outputs, batch.targets);
    sums.count += static_cast<double>(piece.size());
  }
  return sums;
}

}  // namespace

Result<Evaluation> Evaluate(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test,
                            comm::Communicator& communicator, const std::function<bool()>& leave) {
  LOCKSTEP_TRY(SyncBuffers(communicator, state));
  Result<Sums> own = Sums{};
  const Result<void> done = comm::CatchTorch(ErrorCode::kInternal, "evaluation", [&] {
    const at::NoGradGuard no_grad;
    state.model->eval();
    own = state.staged != nullptr
              ? EvaluateInPipeline(spec, state, test, communicator, leave)
              : EvaluateShare(spec, state, test,
                              SliceOf(test.size(), communicator.rank(), communicator.world()), communicator,
                              leave);
  });
  state.model->train();
  if (!done.ok()) return done.error();
  LOCKSTEP_TRY(const Sums sums, std::move(own));
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

}  // namespace lockstep::train
