#pragma once
// The state of strategies localsgd and async: replicated between two windows of steps, with the momentum of
// DiLoCo's outer step if the spec has one. Step thread.

#include <memory>
#include <vector>

#include "runtime/train/replicated/replicated_state.h"

namespace lockstep::train {

class LocalSgdState final : public ReplicatedState {
 public:
  explicit LocalSgdState(const StateInputs& inputs) : ReplicatedState(inputs) {}
  [[nodiscard]] Result<void> Build() override;

  [[nodiscard]] StateMemory Memory(int world) const override;
  [[nodiscard]] std::unique_ptr<Stepper> MakeStepper(const StepContext& context) override;

  // For spec.sync.outer; else empty.
  [[nodiscard]] const std::vector<NamedTensor>& outer_momentum() const { return outer_momentum_; }

 protected:
  [[nodiscard]] std::vector<NamedTensor> HeldMoments() const override;

 private:
  std::vector<NamedTensor> outer_momentum_;
};

}  // namespace lockstep::train
