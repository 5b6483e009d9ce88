#pragma once
// Takes the steps of a model that is divided over the ranks by elements, as transactions (sharded_layers.h).
// All ranks make as many passes as the one with the most micro-batches. The sum that ends the step has the
// squares of the gradient, each element once, so all ranks know its norm. Step thread.

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/train/fsdp/fsdp_state.h"
#include "runtime/train/step/batch_math.h"
#include "runtime/train/step/loss_total.h"
#include "runtime/train/step/not_finite_steps.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {

class FsdpStepper final : public Stepper {
 public:
  FsdpStepper(const StepContext& context, FsdpState& state);

  [[nodiscard]] Result<void> EnterRound(std::shared_ptr<comm::Communicator> communicator) override;
  void Share(std::vector<double> speeds, int64_t until_step) override;
  [[nodiscard]] Result<StepReport> Run(int64_t end, const StepCalls& calls,
                                       const std::stop_token& stop) override;
  void ForgetRound() override { communicator_.reset(); }

 private:
  // Of this rank's micro-batches.
  struct Passed {
    LossTotal loss{};     // summed over the samples
    int64_t corrupt = 0;  // samples left out
  };
  [[nodiscard]] Result<StepReport> Attempt(const Requests& requests, const std::stop_token& stop);
  // Without a piece: takes part in those of the others.
  [[nodiscard]] Result<void> Pass(const Slice* piece, Passed& passed, const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> End(const at::Tensor& sums, StepReport report, bool is_loss_finite);
  [[nodiscard]] Result<std::string> WhereNotFinite(bool is_loss_finite);

  const StepContext context_;
  FsdpState& state_;
  const MicroBatchPolicy micro_batch_policy_;
  data::Loader loader_;
  std::vector<double> speeds_ = {1};  // of the round's ranks
  NotFiniteSteps not_finite_;
  std::shared_ptr<comm::Communicator> communicator_;  // of the round; shared with the loop, which closes it
};

}  // namespace lockstep::train
