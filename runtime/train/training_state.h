#pragma once
// The state that a step changes: completed steps, parameters, buffers and optimizer state. Everything else
// (position in the data, learning rate, random numbers) is a function of the step. Owned by the step thread.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/train/early_stop.h"
#include "runtime/train/loss_scale.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/replicas.h"
#include "runtime/train/sharded_optimizer.h"
#include "runtime/train/stage_copies.h"
#include "runtime/train/staged_state.h"

namespace lockstep::train {

struct TrainingState {
  int64_t step =
      -1;  // completed steps; -1: training cannot continue from it, because it is freshly made or torn
  bool is_torn = false;             // see Tear
  EvaluationRecord evaluations;     // up to this step
  at::Device device = at::kCPU;     // of all tensors but the loss scale
  ModelInput input;                 // the input that the model was made for
  std::shared_ptr<Model> model;     // shared_ptr by torch::nn::Module's design
  std::vector<at::Tensor> trained;  // the parameters that have a gradient
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::vector<Replica> replicas;  // `model` itself, then those on the process's other devices
  // Exactly one of the three is set: `sharded` for zero1, `staged` if layers are divided over the ranks, else
  // `optimizer`. `staged` has its own optimizer, and of `parameters` and `buffers` only those of its stage
  // are valid then.
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ShardedOptimizer> sharded;
  std::unique_ptr<StagedState> staged;
  StageCopies stage_copies;                 // copies of `staged`
  std::vector<NamedTensor> outer_momentum;  // for spec.sync.outer
  LossScale loss_scale;

  // Everything that a checkpoint contains, in the same order in every process. Tensors of a sharded optimizer
  // and of other ranks' stages have no data here.
  [[nodiscard]] std::vector<NamedTensor> Tensors() const;
  // The subset that every rank holds completely: without sharded optimizer state and without stages.
  [[nodiscard]] std::vector<NamedTensor> Replicated() const;
  // A checksum of parameters, optimizer state (unless it is sharded) and loss scale. It is equal on all ranks
  // after each step (or window of steps), because all apply the same gradient. Buffers are excluded, because
  // their statistics come from each rank's own samples.
  [[nodiscard]] int64_t Digest() const;

  // Must be called before another state is written over this one piece by piece: from then on it is a
  // mixture, has step -1 and is not a fresh state either. Complete ends that. Not used if layers are divided:
  // `staged` tracks what it holds.
  void Tear();
  void Complete(int64_t completed_steps);
};

// Creates the state on the first device, with a replica on each of the others, with the same parameters on
// every device. Errors name the field. zero1 keeps its copies in other pods, which have `ranks_in_pod` ranks
// each.
[[nodiscard]] Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input,
                                                      std::span<const at::Device> devices,
                                                      int ranks_in_pod = 1);
// On the CPU.
[[nodiscard]] Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input);
// Resets the state to that before the first step.
[[nodiscard]] Result<void> StartAfresh(const api::TrainingSpec& spec, TrainingState& state);

}  // namespace lockstep::train
