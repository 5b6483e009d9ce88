#pragma once
// A model whose parameters and optimizer state are divided over the ranks by elements (ZeRO stage 3:
// Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020). Each rank
// holds an equal piece of each unit (units.h); the parameters of the model have no memory until a LayerPass
// gathers their unit. Pieces are float32, whatever the type in which the parameters are used.
//
// A step is a transaction. It ends with one sum over all ranks. Before the sum, every rank has the summed
// gradient of its pieces. A rank that does not learn the result keeps them: in the next round another rank
// reports it, and the rank then makes the step. So no rank keeps a second copy of anything.
//
// The ranks of the round form sharding groups, each of which holds everything, as in PyTorch's hybrid sharding
// (Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", 2023, section 3.2.2): a
// unit is gathered inside a group (Communicator::subgroup), and gradients are summed over the groups once in a
// step (SumOverGroups). All groups make the same update, so the loss of a rank costs nothing where there are
// two of them.
//
// With `cpuOffload`, pieces and the optimizer's state of them are in host memory and are updated there (Ren et
// al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", 2021). Gathered layers and gradients are on
// the device.
//
// With `copies`, each piece is also kept by ranks in the pods before that of its owner, which sends them its
// summed gradient in each step (ShareGradients); they make the same update.
//
// Step thread. kAborted: the round broke; kInternal: LibTorch failed.

#include <memory>
#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/train/fsdp/units.h"
#include "runtime/train/shards/held_shards.h"
#include "runtime/train/state/state_memory.h"
#include "runtime/train/state/step_facts.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class ShardedLayers final : public HeldShards {
 public:
  // `model` is on the CPU, in its state before the first step; afterwards its trained parameters have no
  // memory. kInvalidArgument if it cannot be divided.
  [[nodiscard]] static Result<std::unique_ptr<ShardedLayers>> Make(const api::TrainingSpec& spec,
                                                                   std::shared_ptr<Model> model,
                                                                   at::Device device, Copies copies);

  // What this rank holds of the state before the first step, in a round that it has agreed on. `fresh` has it;
  // null: the model that this was made of, whose parameters are dropped by Redistribute.
  void LoadFresh(int rank, int world, const Model* fresh);
  [[nodiscard]] bool has_initial() const { return !initial_.empty(); }
  void DropInitial() { initial_.clear(); }

  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  [[nodiscard]] std::size_t units() const { return units_.size(); }
  // The units of a layer's own parameters.
  [[nodiscard]] const UnitNumbers& UnitsOf(std::size_t layer) const { return of_layer_[layer]; }
  // The units of what several layers use.
  [[nodiscard]] const UnitNumbers& shared_units() const { return shared_; }
  // Of what is divided.
  [[nodiscard]] StateMemory Memory(int world) const;
  // Ranks of a group, of `holders` that share the state.
  [[nodiscard]] int GroupOf(int holders) const override { return GroupSize(holders, sharding_group_); }
  // Elements of a unit that each rank of a group holds; the pieces of the last ranks may be smaller.
  [[nodiscard]] int64_t PieceOf(std::size_t unit, int group) const;
  // This rank's elements in the unit's type, padded to the size of a piece.
  [[nodiscard]] at::Tensor PaddedPiece(std::size_t unit, int group) const;
  // Of this rank's pieces; empty without weightAverage.
  [[nodiscard]] std::vector<WeightAndAverage> Averages() const;
  // Gives the parameters of a unit the memory of `gathered`, which loses it.
  void Show(std::size_t unit, const at::Tensor& gathered);
  // Frees that memory.
  void Hide(std::size_t unit);

  // Forgets the gradients of an earlier step.
  void BeginStep();
  // The gradients of a unit's parameters in its type, in which autograd computes them, one after another, padded
  // to the pieces of all ranks of a group. The parameters lose them.
  [[nodiscard]] at::Tensor TakeGradients(std::size_t unit, int group);
  // Adds to the gradient of this rank's piece.
  void AddGradient(std::size_t unit, const at::Tensor& sum);
  // Of the gradients of this rank's pieces.
  [[nodiscard]] double SquaresOfGradients() const;
  // The last of the parameters whose gradient is not finite here, -1: none. In the order of TrainedNames.
  [[nodiscard]] int64_t LastNotFinite() const;
  [[nodiscard]] std::vector<std::string> TrainedNames() const;

  // All ranks call this together when the gradients of their groups are complete. Nothing is sent if there is
  // one group.
  [[nodiscard]] Result<void> SumOverGroups(comm::Communicator& communicator);
  // All ranks call this together when their gradients are complete: gives those of its pieces to the ranks
  // that hold copies.
  [[nodiscard]] Result<void> ShareGradients(comm::Communicator& communicator);
  // All gradients are here. From now on this rank can make the step when it learns the result of the sum.
  void AwaitEnd(double learning_rate);
  [[nodiscard]] const Version& pending() const { return pending_; }
  // Ends the step, also one that changes nothing because it is not finite: then the gradients are kept until
  // the next one begins. After an error there is no valid state.
  [[nodiscard]] Result<StepVerdict> EndStep(const StepEnd& end, double loss_scale);
  // The step is not made.
  void Undo() { pending_ = {}; }

 private:
  ShardedLayers(const api::TrainingSpec& spec, std::shared_ptr<Model> model, Units units, at::Device device,
                Copies copies);

  [[nodiscard]] std::vector<Ranges> Cut(int holders) const override;
  [[nodiscard]] Holder Myself() const override;
  // This rank's piece of a unit, of the version that it would continue from.
  [[nodiscard]] const Shard& Mine(std::size_t unit) const;
  [[nodiscard]] Shard& Mine(std::size_t unit);
  [[nodiscard]] int64_t GatheredBytes(const UnitNumbers& units) const;
  void Update(double factor);
  void ForgetGradients();

  const api::OptimizerSpec spec_;
  const bool is_offloaded_;
  const int sharding_group_;            // 0: one group
  const std::shared_ptr<Model> model_;  // shared_ptr by torch::nn::Module's design
  const std::vector<Layer> layers_;
  std::vector<NamedTensor> parameters_;
  const std::vector<Unit> units_;
  const std::vector<UnitNumbers> of_layer_;
  const UnitNumbers shared_;
  std::vector<at::Tensor> flats_;    // by unit: its parameters are views of it; without memory unless shown
  std::vector<at::Tensor> initial_;  // the parameters before the first step; empty: dropped
  Version pending_;
  double pending_learning_rate_ = 0;
};

}  // namespace lockstep::train
