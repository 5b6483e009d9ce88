#include "runtime/train/make_training_state.h"

#include "runtime/train/fsdp/fsdp_state.h"
#include "runtime/train/local_sgd/local_sgd_state.h"
#include "runtime/train/pipeline/pipeline_state.h"
#include "runtime/train/replicated/replicated_state.h"
#include "runtime/train/zero1/zero1_state.h"

namespace lockstep::train {
namespace {

template <typename State>
Result<std::unique_ptr<TrainingState>> Built(const StateInputs& inputs) {
  auto state = std::make_unique<State>(inputs);
  LOCKSTEP_TRY(state->Build());
  return std::unique_ptr<TrainingState>(std::move(state));
}

}  // namespace

Result<std::unique_ptr<TrainingState>> MakeTrainingState(const api::TrainingSpec& spec,
                                                         const ModelInput& input,
                                                         std::span<const at::Device> devices,
                                                         int ranks_in_pod) {
  const StateInputs inputs{.spec = spec, .input = input, .devices = devices, .ranks_in_pod = ranks_in_pod};
  switch (spec.strategy) {
    case api::Strategy::kDdp:
    case api::Strategy::kDataparallel:
    case api::Strategy::kModelparallel: return Built<ReplicatedState>(inputs);
    case api::Strategy::kLocalsgd:
    case api::Strategy::kAsync: return Built<LocalSgdState>(inputs);
    case api::Strategy::kFsdp: return Built<FsdpState>(inputs);
    case api::Strategy::kZero1: return Built<Zero1State>(inputs);
    case api::Strategy::kPipeline:
    case api::Strategy::kHybrid: return Built<PipelineState>(inputs);
  }
  return Error{ErrorCode::kInvalidArgument, "spec.training.strategy: unknown"};
}

Result<std::unique_ptr<TrainingState>> MakeTrainingState(const api::TrainingSpec& spec,
                                                         const ModelInput& input) {
  const at::Device cpu = at::kCPU;
  return MakeTrainingState(spec, input, std::span(&cpu, 1));
}

}  // namespace lockstep::train
