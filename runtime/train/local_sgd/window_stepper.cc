#include "runtime/train/local_sgd/window_stepper.h"

#include <utility>

namespace lockstep::train {

Result<void> WindowStepper::EnterRound(std::shared_ptr<comm::Communicator> communicator) {
  LOCKSTEP_TRY(ReplicatedStepper::EnterRound(std::move(communicator)));
  local_sgd_.EnterRound(this->communicator());
  return {};
}

void WindowStepper::Share(std::vector<double> speeds, int64_t until_step) {
  if (context().spec.strategy != api::Strategy::kAsync)
    ReplicatedStepper::Share(std::move(speeds), until_step);
}

}  // namespace lockstep::train
