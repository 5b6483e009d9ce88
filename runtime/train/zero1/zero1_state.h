#pragma once
// A state whose model every rank holds, and of the optimizer's state a part (sharded_optimizer.h): strategy
// zero1. Step thread.

#include <memory>
#include <optional>
#include <vector>

#include "runtime/train/replicated/replicated_model.h"
#include "runtime/train/zero1/sharded_optimizer.h"

namespace lockstep::train {

class Zero1State final : public ReplicatedModel {
 public:
  explicit Zero1State(const StateInputs& inputs)
      : ReplicatedModel(inputs), ranks_in_pod_(inputs.ranks_in_pod) {}
  [[nodiscard]] Result<void> Build() override;

  [[nodiscard]] StateMemory Memory(int world) const override;
  [[nodiscard]] Result<void> StartAfresh() override;
  [[nodiscard]] Result<PartToSave> Save(comm::Communicator& communicator) override;
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const override;
  [[nodiscard]] std::unique_ptr<PartToLoad> Load(const LoadRequest& request) override;
  [[nodiscard]] bool holds_a_part() const override { return shards_->holds_a_part(); }
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator,
                                      const std::vector<bool>& stays) override {
    return shards_->HandOver(communicator, stays);
  }
  void Tear() override;
  [[nodiscard]] Result<void> Update(comm::Communicator* peers, double learning_rate) override {
    return shards_->Step(*peers, learning_rate);
  }
  [[nodiscard]] Result<std::vector<WeightAndAverage>> Averages(
      comm::Communicator& communicator) const override {
    return shards_->Averages(communicator);
  }
  void SkipUpdate() override { shards_->Skip(); }

  [[nodiscard]] ShardedOptimizer& shards() { return *shards_; }

 protected:
  [[nodiscard]] std::vector<NamedTensor> HeldMoments() const override { return {}; }
  [[nodiscard]] std::vector<NamedTensor> Moments() const override { return shards_->described(); }
  [[nodiscard]] Result<int64_t> Offer(comm::Communicator& communicator) override;
  [[nodiscard]] Result<void> Settle(comm::Communicator& communicator) override;

 private:
  const int ranks_in_pod_;
  std::unique_ptr<ShardedOptimizer> shards_;
  std::optional<Version> whole_;  // between Offer and Settle: the newest that the ranks hold together
};

}  // namespace lockstep::train
