#pragma once
// One step of a model whose layers are divided over the ranks, as a transaction (step.h). Micro-batches pass
// through the stages of a pipeline, forward and backward. Then the gradients of parameters that several ranks
// hold are summed. Finally one small sum over all ranks yields the gradient norm and shows that all ranks
// have their gradients. A rank that receives this sum makes the step. A rank that does not keeps its
// gradients, and makes the step later if another rank made it (staged_state.h). Step thread.

#include <memory>
#include <stop_token>
#include <vector>

#include "runtime/train/step.h"

namespace lockstep::train {

class PipelineStep {
 public:
  explicit PipelineStep(const StepContext& context);

  // Loads the batches from the state's step on. All ranks of a new round call it, after SyncState.
  void EnterRound();
  // Takes the next step; errors are those of StepRunner::Run.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, const Requests& requests,
                                       const std::stop_token& stop);

 private:
  class Pass;
  [[nodiscard]] Result<StepReport> Attempt(comm::Communicator& communicator, const Requests& requests,
                                           const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> End(comm::Communicator& communicator, const at::Tensor& sums,
                                       int64_t local_count, bool is_loss_finite);
  [[nodiscard]] Result<std::string> WhereNotFinite(comm::Communicator& communicator,
                                                   bool is_loss_finite) const;

  StepContext context_;
  const MicroBatchPolicy micro_batch_policy_;
  data::Loader loader_;
  NotFiniteSteps not_finite_;
};

// Computes the outputs of the rank's stage, without gradients, for evaluations. Only the first stage uses
// `inputs`; other stages receive theirs from the stage before. All stages but the last send their outputs on.
[[nodiscard]] Result<at::Tensor> ForwardThroughStage(comm::Communicator& communicator,
                                                     const StagedState& staged, const at::Tensor& inputs);

}  // namespace lockstep::train
