#pragma once
// A state whose layers are divided over the ranks (staged_state.h), with copies of the stages in host memory
// (stage_copies.h): strategies pipeline and hybrid. Step thread.

#include <memory>
#include <vector>

#include "runtime/train/pipeline/stage_copies.h"
#include "runtime/train/pipeline/staged_state.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

class PipelineState final : public TrainingState {
 public:
  explicit PipelineState(const StateInputs& inputs)
      : TrainingState(inputs), ranks_in_pod_(inputs.ranks_in_pod) {}
  [[nodiscard]] Result<void> Build() override;

  [[nodiscard]] std::vector<NamedTensor> Tensors() const override;
  [[nodiscard]] std::vector<NamedTensor> Replicated() const override { return loss_scale.state(); }
  [[nodiscard]] bool has_whole_model() const override { return false; }
  [[nodiscard]] StateMemory Memory(int world) const override;
  // What is lost is logged.
  [[nodiscard]] Result<StateSource> Sync(comm::Communicator& communicator, const Restore& restore) override;
  [[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator) override;
  // The stage follows when this rank learns the outcome in Sync.
  [[nodiscard]] Result<void> StartAfresh() override;
  [[nodiscard]] std::unique_ptr<Stepper> MakeStepper(const StepContext& context) override;
  // Each rank stores what it holds; rank 0 also stores what all ranks hold.
  [[nodiscard]] Result<PartToSave> Save(comm::Communicator& communicator) override;
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const override;
  [[nodiscard]] std::unique_ptr<PartToLoad> Load(const LoadRequest& request) override;
  [[nodiscard]] bool holds_a_part() const override { return stages_->holds_a_part(); }
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator,
                                      const std::vector<bool>& stays) override {
    return stages_->HandOver(communicator, stays);
  }
  // Copies are also due with each checkpoint, so that no checkpoint is newer than the copies.
  [[nodiscard]] bool CopyIsDue(bool is_saved) const override;
  [[nodiscard]] Result<void> Copy(comm::Communicator& communicator) override;
  // All pipelines get equal shares. The first stage decides for its pipeline, so the stages need no
  // agreement.
  [[nodiscard]] PartToEvaluate PartOfEvaluation(int64_t samples, int rank,
                                                std::span<const double> speeds) const override;
  [[nodiscard]] Result<at::Tensor> Evaluate(comm::Communicator& communicator,
                                            const at::Tensor& inputs) override;
  [[nodiscard]] Result<std::vector<WeightAndAverage>> Averages(
      comm::Communicator& communicator) const override;
  // `stages` knows itself what it holds.
  void Tear() override {}

  [[nodiscard]] StagedState& stages() { return *stages_; }
  [[nodiscard]] const StagedState& stages() const { return *stages_; }

 private:
  struct RankState;
  [[nodiscard]] StepFacts Facts() const;
  [[nodiscard]] std::vector<int64_t> Encode() const;
  [[nodiscard]] Result<std::vector<RankState>> ExchangeRankStates(comm::Communicator& communicator) const;
  // Where to continue: from what the ranks hold, from the copies, or at the start.
  [[nodiscard]] Result<StateSource> GoOnFrom(const Version& version, const std::vector<RankState>& all);
  [[nodiscard]] Result<StateSource> GoBackTo(const Version& version, const std::vector<RankState>& all);
  [[nodiscard]] Result<StateSource> SyncAtStart(comm::Communicator& communicator, const Restore& restore);
  // The broken step succeeded on other ranks, and this rank has everything to complete it.
  [[nodiscard]] Result<void> CompletePendingStep(const StepEnd& end);

  const int ranks_in_pod_;
  std::unique_ptr<StagedState> stages_;
  StageCopies copies_;
};

}  // namespace lockstep::train
