#include "runtime/train/step/stepper.h"

#include <algorithm>

namespace lockstep::train {

Error AllCorrupt(const std::string& what, int64_t samples) {
  return {ErrorCode::kDataLoss, "spec.training.data.path: all " + std::to_string(samples) + " samples of " +
                                    what +
                                    " are corrupt (the ranks' logs name them); replace or remove them"};
}

// With async the reading thread claims batches, so there must be one: the step thread waits for the claims.
int LoaderWorkers(const StepContext& context) {
  const bool reads_itself = context.samples.are_quick() && context.spec.strategy != api::Strategy::kAsync;
  return reads_itself ? 0 : std::max(1, context.spec.data.workers);
}

data::Loader::Read ReadOf(const StepContext& context, at::Device device) {
  return [&samples = context.samples, pins = !device.is_cpu()](const data::Draw& draw) {
    data::Batch batch = samples.Get(draw);
    return pins ? batch.Pinned() : batch;
  };
}

}  // namespace lockstep::train
