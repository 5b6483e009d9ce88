#pragma once
// One step of a model whose layers are divided over the ranks, as a transaction (replicated/step_runner.h).
// Micro-batches pass through the stages of a pipeline, forward and backward. Then the gradients of parameters
// that several ranks hold are summed. Finally one small sum over all ranks yields the gradient norm and shows
// that all ranks have their gradients. A rank that receives this sum makes the step. A rank that does not
// keeps its gradients, and makes the step later if another rank made it (staged_state.h). Step thread.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/train/pipeline/pipeline_state.h"
#include "runtime/train/step/batch_math.h"
#include "runtime/train/step/not_finite_steps.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {

class PipelineStepper final : public Stepper {
 public:
  PipelineStepper(const StepContext& context, PipelineState& state);

  [[nodiscard]] Result<void> EnterRound(std::shared_ptr<comm::Communicator> communicator) override;
  // The pipelines get equal shares.
  void Share(std::vector<double> speeds, int64_t until_step) override;
  [[nodiscard]] Result<StepReport> Run(int64_t end, const StepCalls& calls,
                                       const std::stop_token& stop) override;
  void ForgetRound() override { communicator_.reset(); }

 private:
  class Pass;
  [[nodiscard]] Result<StepReport> Attempt(const Requests& requests, const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> End(const at::Tensor& sums, int64_t local_count, bool is_loss_finite);
  [[nodiscard]] Result<std::string> WhereNotFinite(bool is_loss_finite) const;
  // The share of the rank's pipeline as a function of the step, or no share for an idle rank. Captures what
  // it needs of the round, because the loader's threads may call it after the next round has begun.
  [[nodiscard]] std::function<RankShare(int64_t step)> ShareOfPipeline() const;

  const StepContext context_;
  PipelineState& state_;
  StagedState& stages_;
  const MicroBatchPolicy micro_batch_policy_;
  data::Loader loader_;
  NotFiniteSteps not_finite_;
  std::shared_ptr<comm::Communicator> communicator_;  // of the round; shared with the loop, which closes it
};

// Computes the outputs of the rank's stage, without gradients, for evaluations. Only the first stage uses
// `inputs`; other stages receive theirs from the stage before. All stages but the last send their outputs on.
[[nodiscard]] Result<at::Tensor> ForwardThroughStage(comm::Communicator& communicator,
                                                     const StagedState& staged, const at::Tensor& inputs);

}  // namespace lockstep::train
