#include "runtime/train/replicated/replicated_stepper.h"

#include "runtime/train/replicated/strategy_choice.h"

namespace lockstep::train {

Result<void> ReplicatedStepper::EnterRound(std::shared_ptr<comm::Communicator> communicator) {
  communicator_ = std::move(communicator);
  LOCKSTEP_TRY(strategy_, MakeStrategy(context_.spec, communicator_, state_));
  return {};
}

Result<StepReport> ReplicatedStepper::Run(int64_t /*end*/, const StepCalls& calls,
                                          const std::stop_token& stop) {
  calls.begins(state_.step, 0);
  return runner_.Run(*communicator_, *strategy_, calls.requests(), stop);
}

void ReplicatedStepper::ForgetRound() {
  strategy_.reset();
  communicator_.reset();
}

}  // namespace lockstep::train
