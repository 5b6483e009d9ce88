#pragma once
// A state whose parameters and optimizer state are divided over the ranks by elements (sharded_layers.h):
// strategy fsdp. Buffers and parameters that are not trained are whole on every rank. Step thread.

#include <memory>
#include <vector>

#include "runtime/train/fsdp/sharded_layers.h"
#include "runtime/train/state/step_facts.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

class FsdpState final : public TrainingState {
 public:
  explicit FsdpState(const StateInputs& inputs) : TrainingState(inputs), ranks_in_pod_(inputs.ranks_in_pod) {}
  [[nodiscard]] Result<void> Build() override;

  [[nodiscard]] std::vector<NamedTensor> Tensors() const override { return With(layers_->described()); }
  [[nodiscard]] std::vector<NamedTensor> Replicated() const override { return With({}); }
  [[nodiscard]] bool has_whole_model() const override { return false; }
  [[nodiscard]] StateMemory Memory(int world) const override;
  [[nodiscard]] int SubgroupOf(int world) const override { return layers_->GroupOf(world); }
  [[nodiscard]] Result<StateSource> Sync(comm::Communicator& communicator, const Restore& restore) override;
  [[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator) override;
  // The layers follow in Sync.
  [[nodiscard]] Result<void> StartAfresh() override;
  [[nodiscard]] std::unique_ptr<Stepper> MakeStepper(const StepContext& context) override;
  // Each tensor is sent to the rank that writes it.
  [[nodiscard]] Result<PartToSave> Save(comm::Communicator& communicator) override;
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const override;
  [[nodiscard]] std::unique_ptr<PartToLoad> Load(const LoadRequest& request) override;
  [[nodiscard]] bool holds_a_part() const override { return layers_->holds_a_part(); }
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator,
                                      const std::vector<bool>& stays) override {
    return layers_->HandOver(communicator, stays);
  }
  [[nodiscard]] PartToEvaluate PartOfEvaluation(int64_t samples, int rank,
                                                std::span<const double> speeds) const override;
  [[nodiscard]] Result<at::Tensor> Evaluate(comm::Communicator& communicator,
                                            const at::Tensor& inputs) override;
  [[nodiscard]] Result<std::vector<WeightAndAverage>> Averages(
      comm::Communicator& communicator) const override;
  void Tear() override;

  // The forward passes of a step change running statistics: undone if the step is not made.
  [[nodiscard]] Result<void> BeginStep();
  [[nodiscard]] Result<StepVerdict> EndStep(const StepEnd& end);
  [[nodiscard]] Result<void> UndoStep();
  [[nodiscard]] ShardedLayers& layers() { return *layers_; }
  [[nodiscard]] const ShardedLayers& layers() const { return *layers_; }

 private:
  struct RankState;
  // Everything that a checkpoint contains, with these divided tensors.
  [[nodiscard]] std::vector<NamedTensor> With(std::vector<NamedTensor> divided) const;
  [[nodiscard]] StepFacts Facts() const;
  [[nodiscard]] Result<std::vector<RankState>> ExchangeRankStates(comm::Communicator& communicator) const;
  [[nodiscard]] Result<StateSource> GoOnFrom(const Version& version, comm::Communicator& communicator);
  [[nodiscard]] Result<StateSource> SyncAtStart(comm::Communicator& communicator, const Restore& restore);
  [[nodiscard]] Result<void> TakeFresh(const comm::Communicator& communicator);

  const int ranks_in_pod_;
  std::unique_ptr<ShardedLayers> layers_;
  std::vector<NamedTensor> whole_;  // parameters that are not trained, and buffers
  std::vector<at::Tensor> buffers_before_;
  StepEnd last_end_;
};

}  // namespace lockstep::train
