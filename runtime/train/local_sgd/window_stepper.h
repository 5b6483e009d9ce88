#pragma once
// Takes windows of steps (local_sgd.h). Step thread.

#include <memory>
#include <vector>

#include "runtime/train/local_sgd/local_sgd.h"
#include "runtime/train/replicated/replicated_stepper.h"

namespace lockstep::train {

class WindowStepper final : public ReplicatedStepper {
 public:
  WindowStepper(const StepContext& context, LocalSgdState& state)
      : ReplicatedStepper(context, state), local_sgd_(context, state, runner()) {}

  [[nodiscard]] Result<void> EnterRound(std::shared_ptr<comm::Communicator> communicator) override;
  // With async each rank claims what it can.
  void Share(std::vector<double> speeds, int64_t until_step) override;
  [[nodiscard]] Result<StepReport> Run(int64_t end, const StepCalls& calls,
                                       const std::stop_token& stop) override {
    return local_sgd_.Run(communicator(), strategy(), end, calls, stop);
  }

 private:
  LocalSgd local_sgd_;
};

}  // namespace lockstep::train
