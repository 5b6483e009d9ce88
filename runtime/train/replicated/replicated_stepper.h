#pragma once
// Takes the steps of a state whose model every rank holds (step_runner.h). Step thread.

#include <memory>
#include <utility>
#include <vector>

#include "runtime/train/replicated/step_runner.h"

namespace lockstep::train {

class ReplicatedStepper : public Stepper {
 public:
  ReplicatedStepper(const StepContext& context, ReplicatedModel& state)
      : context_(context), state_(state), runner_(context, state) {}

  [[nodiscard]] Result<void> EnterRound(std::shared_ptr<comm::Communicator> communicator) override;
  void Share(std::vector<double> speeds, int64_t until_step) override {
    runner_.SetShares(communicator_->rank(), std::move(speeds), until_step);
  }
  [[nodiscard]] Result<StepReport> Run(int64_t end, const StepCalls& calls,
                                       const std::stop_token& stop) override;
  void LeaveRound() override { runner_.LeaveRound(); }
  void ForgetRound() override;

 protected:
  [[nodiscard]] const StepContext& context() const { return context_; }
  [[nodiscard]] StepRunner& runner() { return runner_; }
  [[nodiscard]] comm::Communicator& communicator() { return *communicator_; }
  [[nodiscard]] parallel::Strategy& strategy() { return *strategy_; }

 private:
  const StepContext context_;
  ReplicatedModel& state_;
  StepRunner runner_;
  // Those of the round.
  std::shared_ptr<comm::Communicator> communicator_;  // shared with the loop, which closes it
  std::unique_ptr<parallel::Strategy> strategy_;
};

}  // namespace lockstep::train
