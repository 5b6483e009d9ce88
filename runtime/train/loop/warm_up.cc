#include "runtime/train/loop/warm_up.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/models/precision.h"

namespace lockstep::train {
namespace {

// Enough for kernels to use the code path of a full batch, and fast on any machine.
constexpr int64_t kSamples = 16;

at::Tensor LossOf(const data::Batch& batch, TrainingState& state, api::Precision precision) {
  const models::Autocast autocast(precision, state.device.type());
  return state.model->LossSum(state.model->Forward(batch.inputs), batch.targets);
}

void RunOnce(const data::Batch& batch, TrainingState& state, api::Precision precision) {
  state.model->train();
  LossOf(batch, state, precision).backward();
  for (const NamedTensor& parameter : state.parameters) {
    // Other samples may take another branch, but more often it is a mistake in the model.
    if (parameter.tensor.requires_grad() && !parameter.tensor.grad().defined())
      log::Warning("a parameter gets no gradient from the first samples", {{"parameter", parameter.name}});
  }
  for (const NamedTensor& parameter : state.parameters) {
    if (parameter.tensor.requires_grad()) parameter.tensor.mutable_grad().reset();
  }
}

void ThrowOnce() {
  const Result<void> thrown =
      comm::CatchTorch(ErrorCode::kInternal, "warm-up", [] { TORCH_CHECK(false, "thrown on purpose"); });
  LOCKSTEP_CHECK(!thrown.ok());
}

}  // namespace

Result<void> WarmUp(const api::TrainingSpec& spec, const data::Dataset& dataset, TrainingState& state) {
  ThrowOnce();
  // The complete model may not fit the device, and this rank's part is not known yet.
  if (!state.has_whole_model()) return {};
  data::Batch batch;
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInvalidArgument, "reading data", [&] {
    std::vector<int64_t> ids(
        static_cast<std::size_t>(std::min({kSamples, dataset.size(), spec.global_batch_size})));
    std::iota(ids.begin(), ids.end(), 0);
    batch = dataset.Get(ids).To(state.device);
  }));
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model cannot be trained on the data",
                          [&] {
                            std::vector<at::Tensor> before;
                            before.reserve(state.buffers.size());
                            for (const NamedTensor& buffer : state.buffers)
                              before.push_back(buffer.tensor.clone());
                            RunOnce(batch, state, spec.precision);
                            const at::NoGradGuard no_grad;
                            for (std::size_t i = 0; i < before.size(); ++i)
                              state.buffers[i].tensor.copy_(before[i]);
                          });
}

}  // namespace lockstep::train
