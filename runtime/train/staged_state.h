#pragma once
// What a rank holds of a model whose layers are divided over the ranks (strategies pipeline and hybrid):
// parameters, buffers and optimizer state of its stage, and of nothing else. In place of the other parameters
// the model has tensors of one element that look as large.
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
#include "runtime/train/optimizer.h"
#include "runtime/train/stage_holders.h"

namespace lockstep::train {

// What the sum at the end of a step came to: the same on all ranks.
struct StepEnd {
  double count = 0;    // samples
  double loss = 0;     // their sum
  double squares = 0;  // of the gradient, which is a sum over samples, too, and scaled
};

struct StepVerdict {
  double gradient_norm = 0;  // of the mean gradient, before clipping
  bool applied = true;       // false: not finite
};

class StagedState {
 public:
  // `model` is on the CPU, as it is before the first step. kInvalidArgument where it cannot be divided.
  [[nodiscard]] static Result<std::unique_ptr<StagedState>> Make(const api::TrainingSpec& spec,
                                                                 const ModelInput& input,
                                                                 std::shared_ptr<Model> model,
                                                                 at::Device device);

  // All that a checkpoint holds but for the loss scale, in the order of TrainingState::Tensors. What is not
  // held here has no data.
  [[nodiscard]] std::vector<NamedTensor> tensors() const;
  // Of each of those, the rank of the round that is to store it.
  [[nodiscard]] std::vector<int> Writers(int world) const;
  [[nodiscard]] bool holds_all() const;

  // The layers that a rank is to read of a stored state: of its stage, divided over those that have the same.
  [[nodiscard]] std::vector<bool> LayersToRead(int rank, int world) const;
  // Of each of tensors(), whether those layers use it.
  [[nodiscard]] std::vector<bool> AreOf(const std::vector<bool>& layers) const;
  // This rank now holds those layers, in the CPU's memory, as they were stored: in that order, undefined what
  // is not held; or all of it as before the first step. Such a version is of no round.
  void Load(int64_t step, const std::vector<bool>& layers, const std::vector<at::Tensor>& tensors);
  // The same of a version.
  void LoadPart(const Version& version, const std::vector<bool>& layers,
                const std::vector<at::Tensor>& tensors);
  [[nodiscard]] Result<void> StartAfresh();

  [[nodiscard]] StageHolder Myself() const { return {version_, pending_, held_}; }
  [[nodiscard]] const Version& version() const { return version_; }
  [[nodiscard]] const api::TrainingSpec& spec() const { return spec_; }
  [[nodiscard]] at::Device device() const { return device_; }
  void Forget();
  // On all ranks together: to each the layers that it is to hold, from those that have `version`.
  [[nodiscard]] Result<void> Deliver(comm::Communicator& communicator, const Version& version,
                                     const std::vector<parallel::LayerRange>& wanted);
  // On all ranks of a new round: as its mesh says.
  [[nodiscard]] Result<void> Deal(comm::Communicator& communicator, const Version& version);
  // On all ranks, within a round: those that leave it may go, what they hold is with the others.
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator, bool leaves);
  // Running statistics of the first pipeline to the others.
  [[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator);

  // The round's, from Deal on.
  [[nodiscard]] const parallel::Mesh& mesh() const { return mesh_; }
  [[nodiscard]] const std::optional<parallel::MeshPlace>& place() const { return place_; }  // absent: idle
  [[nodiscard]] const parallel::LayerRange& range() const { return range_; }
  // What a rank of the round holds, in the order of tensors(): undefined what it does not, without data what
  // this one does not. And its layers.
  [[nodiscard]] std::vector<at::Tensor> TensorsOf(int rank) const;
  [[nodiscard]] std::vector<bool> LayersOf(int rank) const;
  [[nodiscard]] const Layer& layer(int index) const { return layers_.at(static_cast<std::size_t>(index)); }

  // A step: gradients zero, then summed over all that hold the same parameter.
  [[nodiscard]] Result<void> BeginStep();
  [[nodiscard]] Result<void> SumGradients(comm::Communicator& communicator);
  // Of the gradients, each parameter once over all ranks.
  [[nodiscard]] double SquaresOnce() const;
  // The last trained parameter, in the order of names, whose gradient here is not finite (not_finite.h); -1:
  // none. Of a sum over twins.
  [[nodiscard]] int64_t LastNotFinite() const;
  [[nodiscard]] std::vector<std::string> TrainedNames() const;
  // All gradients are there; what is missing is the word of the others, to which this rank gives its part
  // next.
  void AwaitEnd(int64_t round, double learning_rate);
  [[nodiscard]] bool awaits_end() const { return pending_.step >= 0; }
  // The word came: gradients are applied, or the step changes nothing.
  [[nodiscard]] Result<StepVerdict> EndStep(const StepEnd& end, double loss_scale);
  // Of the step that made version().
  [[nodiscard]] const StepEnd& last_end() const { return last_end_; }
  void KnowEnd(const StepEnd& end) { last_end_ = end; }
  // The step is not made.
  void Undo();

 private:
  enum class Kind { kParameter, kBuffer, kMoment };
  struct Entry {
    std::string name;
    Kind kind = Kind::kParameter;
    std::vector<int> layers;     // that use it
    at::Tensor in_model;         // what the model computes with; undefined for a moment
    at::Tensor stand_in;         // as large, without data
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
  [[nodiscard]] Result<std::vector<StageHolder>> TellEachOther(comm::Communicator& communicator) const;
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
  std::optional<parallel::MeshPlace> place_;
  parallel::LayerRange range_;
  std::unique_ptr<Optimizer> optimizer_;    // of this stage; absent where there is nothing to train
  std::vector<at::Tensor> buffers_before_;  // the step; of the buffers held
};

}  // namespace lockstep::train
