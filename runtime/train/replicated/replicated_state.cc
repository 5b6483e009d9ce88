#include "runtime/train/replicated/replicated_state.h"

#include "runtime/comm/torch_error.h"
#include "runtime/train/state/part_to_load.h"

namespace lockstep::train {

Result<void> ReplicatedState::Build() {
  LOCKSTEP_TRY(BuildState());
  return {};
}

Result<std::vector<NamedTensor>> ReplicatedState::BuildState() {
  LOCKSTEP_TRY(std::vector<NamedTensor> trained, BuildModel());
  LOCKSTEP_TRY(optimizer_, comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model",
                                            [&] { return MakeOptimizer(spec().optimizer, trained); }));
  return trained;
}

Result<PartToSave> ReplicatedState::Save(comm::Communicator& /*communicator*/) {
  return PartToSave{.tensors = Tensors()};
}

std::unique_ptr<PartToLoad> ReplicatedState::Load(const LoadRequest& request) {
  return std::make_unique<PartToLoad>(*this, request, /*may_write_in_place=*/true);
}

Result<void> ReplicatedState::Update(comm::Communicator* /*peers*/, double learning_rate) {
  return comm::CatchTorch(ErrorCode::kInternal, "optimizer", [&] { optimizer_->Step(step, learning_rate); });
}

Result<std::vector<WeightAndAverage>> ReplicatedState::Averages(comm::Communicator& /*communicator*/) const {
  return comm::CatchTorch(ErrorCode::kInternal, "averages", [this] { return optimizer_->Averages(); });
}

}  // namespace lockstep::train
