#include "runtime/train/evaluation.h"

#include <ATen/ATen.h>

#include <numeric>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/batch_math.h"
#include "runtime/train/sync.h"

namespace lockstep::train {
namespace {

struct Sums {
  double loss = 0;
  double correct = 0;
  double count = 0;
  double leaving = 0;
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
    const data::Batch batch = test.Get(ids).To(state.device);
    const at::Tensor logits = model.Forward(batch.inputs);
    sums.loss += model.LossSum(logits, batch.targets).item<double>();
    sums.correct += model.CountRight(logits, batch.targets);
    sums.count += static_cast<double>(piece.size());
  }
  return sums;
}

}  // namespace

Result<Evaluation> Evaluate(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test,
                            comm::Communicator& communicator, const std::function<bool()>& leave) {
  LOCKSTEP_TRY(SyncBuffers(communicator, state));
  Sums sums;
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "evaluation", [&] {
    const at::NoGradGuard no_grad;
    state.model->eval();
    sums = EvaluateShare(spec, state, test, SliceOf(test.size(), communicator.rank(), communicator.world()),
                         communicator, leave);
  }));
  state.model->train();
  at::Tensor total = at::tensor({sums.loss, sums.correct, sums.count, sums.leaving}, at::kDouble);
  LOCKSTEP_TRY(communicator.SumInPlace(total));
  const double count = total[2].item<double>();
  return Evaluation{.loss = total[0].item<double>() / count,
                    .accuracy = total[1].item<double>() / count,
                    .complete = total[3].item<double>() == 0};
}

}  // namespace lockstep::train
