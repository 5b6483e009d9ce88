#pragma once
// A state of which every rank holds all: strategies ddp, dataparallel and modelparallel, and what localsgd
// and async build on. Step thread.

#include <memory>
#include <vector>

#include "runtime/train/replicated/replicated_model.h"

namespace lockstep::train {

class ReplicatedState : public ReplicatedModel {
 public:
  explicit ReplicatedState(const StateInputs& inputs) : ReplicatedModel(inputs) {}
  [[nodiscard]] Result<void> Build() override;

  [[nodiscard]] Result<PartToSave> Save(comm::Communicator& communicator) override;
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const override { return Tensors(); }
  [[nodiscard]] std::unique_ptr<PartToLoad> Load(const LoadRequest& request) override;
  [[nodiscard]] Result<void> Update(comm::Communicator* peers, double learning_rate) override;

  [[nodiscard]] Result<std::vector<WeightAndAverage>> Averages(
      comm::Communicator& communicator) const override;

  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }

 protected:
  // The same for a subclass that has more to build for the parameters that have a gradient.
  [[nodiscard]] Result<std::vector<NamedTensor>> BuildState();
  [[nodiscard]] std::vector<NamedTensor> HeldMoments() const override { return optimizer_->state(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace lockstep::train
