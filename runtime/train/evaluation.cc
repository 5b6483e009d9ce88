#include "runtime/train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/pipeline_step.h"
#include "runtime/train/step.h"
#include "runtime/train/sync.h"

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

}  // namespace

Evaluator::Evaluator(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test)
    : spec_(spec),
      state_(state),
      test_(test),
      loader_(ReaderOf(test, !state.device.is_cpu()), WorkersFor(spec, test), spec.data.prefetch) {}

Result<Evaluation> Evaluator::Run(comm::Communicator& communicator, std::span<const double> speeds,
                                  const std::function<bool()>& leave, const std::stop_token& stop) {
  LOCKSTEP_TRY(SyncBuffers(communicator, state_));
  Result<Sums> own = Sums{};
  const Result<void> done = comm::CatchTorch(ErrorCode::kInternal, "evaluation", [&] {
    const at::NoGradGuard no_grad;
    state_.model->eval();
    own =
        state_.staged != nullptr
            ? RunInPipeline(communicator, leave, stop)
            : RunShare(SlicesBySpeed(test_.size(), speeds).at(static_cast<std::size_t>(communicator.rank())),
                       communicator, leave, stop);
  });
  state_.model->train();
  loader_.Start({});  // frees the memory of prefetched batches
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

Result<Evaluator::Sums> Evaluator::RunShare(Slice share, const comm::Communicator& communicator,
                                            const std::function<bool()>& leave, const std::stop_token& stop) {
  const models::Autocast precision(spec_.precision, state_.device.type());
  Model& model = *state_.model;
  Sums sums;
  for (const Slice& piece : Load(share)) {
    if (communicator.aborted()) break;
    if (leave()) {
      sums.leaving = 1;
      break;
    }
    LOCKSTEP_TRY(const data::Batch batch, Next(stop));
    sums.corrupt += static_cast<double>(batch.left_out);
    if (batch.left_out == piece.size()) continue;
    const at::Tensor logits = model.Forward(batch.inputs);
    sums.loss += model.LossSum(logits, batch.targets).item<double>();
    sums.correct += model.CountRight(logits, batch.targets);
    sums.count += static_cast<double>(piece.size() - batch.left_out);
  }
  return sums;
}

// Evaluates the share of this rank's pipeline. Its first stage decides for the whole pipeline when to stop
// early, so the stages need no agreement.
Result<Evaluator::Sums> Evaluator::RunInPipeline(comm::Communicator& communicator,
                                                 const std::function<bool()>& leave,
                                                 const std::stop_token& stop) {
  Sums sums;
  const StagedState& staged = *state_.staged;
  if (!staged.coordinate().has_value()) return sums;
  const models::Autocast precision(spec_.precision, state_.device.type());
  const bool is_first = staged.coordinate()->stage == 0;
  const bool is_last = staged.coordinate()->stage + 1 == staged.mesh().stages;
  const bool reads = is_first || is_last;
  const Slice share = SliceOf(test_.size(), staged.coordinate()->pipeline, staged.mesh().pipelines);
  for (const Slice& piece : reads ? Load(share) : Batches(share)) {
    data::Batch batch;
    if (is_first && leave()) {
      sums.leaving = 1;
    } else if (reads) {
      LOCKSTEP_TRY(batch, Next(stop));
    }
    LOCKSTEP_TRY(const at::Tensor outputs, ForwardThroughStage(communicator, staged, batch.inputs));
    if (!outputs.defined()) break;
    if (!is_last) continue;
    sums.loss += state_.model->LossSum(outputs, batch.targets).item<double>();
    sums.correct += state_.model->CountRight(outputs, batch.targets);
    sums.count += static_cast<double>(piece.size());
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
