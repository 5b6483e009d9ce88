#pragma once
// What a rank holds of a model whose layers are divided over the ranks (strategies pipeline and hybrid):
// parameters, buffers and optimizer state of its stage, and of nothing else. In place of the other parameters
// the model has placeholders of the same shape with the memory of one element.
//
// Replicated state gets two properties for free. This class has to provide them:
//   a step is a transaction   It ends with one sum over all ranks. Before the sum, every rank has all gradients
//                             of its stage. A rank that does not learn how the sum ended keeps the gradients:
//                             in the next round another rank reports it, and the rank then makes the step.
//   a new round               Layers are sent from the ranks that have them to the ranks that need them. No
//                             rank drops a layer before all ranks have theirs.
//
// Step thread. kAborted: the round broke; kInternal: LibTorch failed.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/parallel/shared_sum.h"
#include "runtime/parallel/stage_plan.h"
#include "runtime/train/pipeline/stage_holders.h"
#include "runtime/train/state/state_memory.h"
#include "runtime/train/state/step_facts.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class StagedState {
 public:
  // `model` is on the CPU, in its state before the first step. kInvalidArgument if it cannot be divided.
  [[nodiscard]] static Result<std::unique_ptr<StagedState>> Make(const api::TrainingSpec& spec,
                                                                 const ModelInput& input,
                                                                 std::shared_ptr<Model> model,
                                                                 at::Device device);

  // Everything that a checkpoint contains except the loss scale, in the order of TrainingState::Tensors.
  // Tensors that are not held here have no data.
  [[nodiscard]] std::vector<NamedTensor> tensors() const;
  // For each of those tensors, the rank of the round that stores it.
  [[nodiscard]] std::vector<int> Writers(int world) const;
  [[nodiscard]] bool holds_all() const;
  [[nodiscard]] bool holds_a_part() const;  // some of the layers, but not all

  // Of the largest stage.
  [[nodiscard]] StateMemory Memory(int world) const;

  // The layers that a rank reads from a stored state: those of its stage, divided among the ranks that have
  // the same stage.
  [[nodiscard]] std::vector<bool> LayersToRead(int rank, int world) const;
  // For each of tensors(), whether one of the layers uses it.
  [[nodiscard]] std::vector<bool> AreOf(const std::vector<bool>& layers) const;
  // Sets these layers of a stored state: CPU tensors in the order of tensors(), undefined if not held.
  // StartAfresh sets the whole state to that before the first step. Such a version belongs to no round.
  void Load(int64_t step, const std::vector<bool>& layers, const std::vector<at::Tensor>& tensors);
  // The same for a given version.
  void LoadPart(const Version& version, const std::vector<bool>& layers,
                const std::vector<at::Tensor>& tensors);
  [[nodiscard]] Result<void> StartAfresh();

  [[nodiscard]] StageHolder Myself() const { return {version_, pending_, held_}; }
  [[nodiscard]] const Version& version() const { return version_; }
  [[nodiscard]] const api::TrainingSpec& spec() const { return spec_; }
  [[nodiscard]] at::Device device() const { return device_; }
  void Forget();
  // All ranks call this together. Sends each rank its wanted layers from the ranks that have `version`.
  [[nodiscard]] Result<void> Deliver(comm::Communicator& communicator, const Version& version,
                                     const std::vector<parallel::LayerRange>& wanted);
  // All ranks of a new round call this. Sends each rank the layers that the mesh of the round assigns to it.
  [[nodiscard]] Result<void> Redistribute(comm::Communicator& communicator, const Version& version);
  // All ranks of the round call this with the same `stays`, of which some are true and some are not.
  // Afterwards the ranks that leave may end, because the others hold their layers.
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator, const std::vector<bool>& stays);
  // Copies the running statistics of the first pipeline to the others.
  [[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator);

  // Those of the round, valid after Redistribute.
  [[nodiscard]] const parallel::Mesh& mesh() const { return mesh_; }
  [[nodiscard]] const std::optional<parallel::MeshCoordinate>& coordinate() const {
    return coordinate_;
  }  // absent: idle
  [[nodiscard]] const parallel::LayerRange& range() const { return range_; }
  // The tensors that a rank of the round holds, in the order of tensors(): undefined if it does not hold one,
  // without data if this rank does not hold it. LayersOf returns its layers.
  [[nodiscard]] std::vector<at::Tensor> TensorsOf(int rank) const;
  [[nodiscard]] std::vector<bool> LayersOf(int rank) const;
  [[nodiscard]] const Layer& layer(int index) const { return layers_.at(static_cast<std::size_t>(index)); }

  // BeginStep zeroes the gradients; SumGradients sums each over all ranks that hold the parameter.
  [[nodiscard]] Result<void> BeginStep();
  [[nodiscard]] Result<void> SumGradients(comm::Communicator& communicator);
  // The sum of squares of this rank's gradients, counting each parameter on one rank only.
  [[nodiscard]] double SquaresOnce() const;
  // The index of the last trained parameter, in the order of names, whose gradient here is not finite
  // (not_finite.h); -1: none. The gradients are sums over the stage replicas.
  [[nodiscard]] int64_t LastNotFinite() const;
  [[nodiscard]] std::vector<std::string> TrainedNames() const;
  // All gradients are complete. The step is pending until the sum over all ranks shows that the others have
  // theirs, too.
  void AwaitEnd(int64_t round, double learning_rate);
  [[nodiscard]] bool awaits_end() const { return pending_.step >= 0; }
  // Completes the pending step with the global sums: applies the gradients, or skips the step if they are not
  // finite.
  [[nodiscard]] Result<StepVerdict> EndStep(const StepEnd& end, double loss_scale);
  // The sums of the step that made version().
  [[nodiscard]] const StepEnd& last_end() const { return last_end_; }
  void SetLastEnd(const StepEnd& end) { last_end_ = end; }
  // Of this stage; empty without weightAverage.
  [[nodiscard]] std::vector<WeightAndAverage> Averages() const;
  // Discards the pending step.
  void Undo();

 private:
  enum class Kind { kParameter, kBuffer, kMoment };
  struct Entry {
    std::string name;
    Kind kind = Kind::kParameter;
    std::vector<int> layers;     // the layers that use it
    at::Tensor in_model;         // the tensor that the model computes with; undefined for a moment
    at::Tensor stand_in;         // same shape, without data
    at::Tensor data;             // undefined: not held
    bool is_trained = false;     // of parameters
    std::vector<int> holders{};  // ranks of the round, ascending
  };

  StagedState(const api::TrainingSpec& spec, ModelInput input, std::shared_ptr<Model> model,
              at::Device device);

  [[nodiscard]] Result<void> FindEntries();
  void AddMoments();
  [[nodiscard]] static bool IsHeldBy(const Entry& entry, const std::vector<bool>& layers);
  [[nodiscard]] std::vector<bool> LayersOf(const parallel::LayerRange& range) const;
  [[nodiscard]] std::vector<int> HoldersOf(const Entry& entry) const;
  [[nodiscard]] parallel::Mesh MeshFor(int world) const;
  [[nodiscard]] Result<std::vector<StageHolder>> ExchangeStates(comm::Communicator& communicator) const;
  void Settle();
  void MakeStageOptimizer();

  const api::TrainingSpec spec_;
  const ModelInput input_;
  const std::shared_ptr<Model> model_;  // shared with the training state, by torch::nn::Module's design
  const at::Device device_;
  std::vector<Layer> layers_;
  std::vector<int64_t> costs_;  // bytes of each layer's parameters
  std::vector<Entry> entries_;  // parameters, buffers, moments
  Version version_;
  Version pending_;
  double pending_learning_rate_ = 0;
  StepEnd last_end_;
  std::vector<bool> held_;  // layers
  parallel::Mesh mesh_;
  std::vector<parallel::LayerRange> ranges_;  // of the stages
  std::optional<parallel::MeshCoordinate> coordinate_;
  parallel::LayerRange range_;
  std::unique_ptr<Optimizer> optimizer_;    // of this stage; absent if there is nothing to train
  std::vector<at::Tensor> buffers_before_;  // values of the held buffers before the step
};

}  // namespace lockstep::train
