#include "runtime/train/local_sgd/local_sgd_state.h"

#include "runtime/comm/torch_error.h"
#include "runtime/train/local_sgd/outer_step.h"
#include "runtime/train/local_sgd/window_stepper.h"

namespace lockstep::train {

Result<void> LocalSgdState::Build() {
  LOCKSTEP_TRY(const std::vector<NamedTensor> trained, BuildState());
  if (!spec().sync.outer.has_value()) return {};
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model",
                          [&] { outer_momentum_ = MakeOuterMomentum(trained); });
}

// A window begins with a copy of everything.
StateMemory LocalSgdState::Memory(int world) const {
  StateMemory memory = ReplicatedState::Memory(world);
  memory.undo = memory.parameters + memory.optimizer;
  return memory;
}

std::unique_ptr<Stepper> LocalSgdState::MakeStepper(const StepContext& context) {
  return std::make_unique<WindowStepper>(context, *this);
}

std::vector<NamedTensor> LocalSgdState::HeldMoments() const {
  std::vector<NamedTensor> moments = ReplicatedState::HeldMoments();
  moments.insert(moments.end(), outer_momentum_.begin(), outer_momentum_.end());
  return moments;
}

}  // namespace lockstep::train
