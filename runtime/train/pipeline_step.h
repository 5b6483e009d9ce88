#pragma once
// One step where the layers of the model are divided over the ranks, as a transaction (step.h). Micro-batches
// pass through the stages of a pipeline, forward and back; gradients of what several ranks hold are summed;
// then one small sum over all ranks says that all have theirs, and how long the gradient is. Who hears it
// makes the step; who does not, keeps what it needs to make it when it is told (staged_state.h). Step thread.

#include <memory>
#include <stop_token>
#include <vector>

#include "runtime/train/step.h"

namespace lockstep::train {

class PipelineStep {
 public:
  explicit PipelineStep(const StepContext& context);

  // Loads the batches of the steps from the state's on. On all ranks of a new round, after SyncState.
  void EnterRound();
  // The next step, as StepRunner::Run.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, const Wishes& wishes,
                                       const std::stop_token& stop);

 private:
  class Pass;
  [[nodiscard]] Result<StepReport> Attempt(comm::Communicator& communicator, const Wishes& wishes,
                                           const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> End(comm::Communicator& communicator, const at::Tensor& sums,
                                       int64_t local_count, bool is_loss_finite);
  [[nodiscard]] Result<std::string> WhereNotFinite(comm::Communicator& communicator,
                                                   bool is_loss_finite) const;

  StepContext context_;
  const Cutting cutting_;
  data::Loader loader_;
  int not_finite_in_a_row_ = 0;
};

// The outputs of the rank's stage for `inputs`, which only the first stage needs; other stages receive
// theirs. What is not of the last stage is sent on. Without gradients; for evaluations.
[[nodiscard]] Result<at::Tensor> ForwardThroughStage(comm::Communicator& communicator,
                                                     const StagedState& staged, const at::Tensor& inputs);

}  // namespace lockstep::train
