#pragma once
// What a step changes: completed steps, parameters, buffers and optimizer state. Everything else (position in
// the data, learning rate, random numbers) follows from the step. Owned by the step thread.

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
  int64_t step = -1;  // completed steps; -1: none that anybody may continue from, it is freshly made or torn
  bool is_torn = false;             // see Tear
  EvaluationRecord evaluations;     // up to this step
  at::Device device = at::kCPU;     // of all tensors but the loss scale
  ModelInput input;                 // what the model was made for
  std::shared_ptr<Model> model;     // shared_ptr by torch::nn::Module's design
  std::vector<at::Tensor> trained;  // the parameters that have a gradient
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::vector<Replica> replicas;  // `model` itself, then those on the process's other devices
  // One of the three: `sharded` where the strategy is zero1, `staged` where layers are divided over the
  // ranks: then it has the optimizer, and of `parameters` and `buffers` only those of its stage are what they
  // seem.
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ShardedOptimizer> sharded;
  std::unique_ptr<StagedState> staged;
  StageCopies stage_copies;                 // of `staged`
  std::vector<NamedTensor> outer_momentum;  // of spec.sync.outer
  LossScale loss_scale;

  // All that a checkpoint holds, in the same order in every process. Those of a sharded optimizer, and of
  // other ranks' stages, have no data here.
  [[nodiscard]] std::vector<NamedTensor> Tensors() const;
  // Those of them that every rank holds whole: all but a sharded optimizer's, and those of stages.
  [[nodiscard]] std::vector<NamedTensor> Replicated() const;
  // Of parameters, optimizer state (unless it is sharded) and loss scale. Equal on all ranks after each step
  // (or window of steps), since all apply the same gradient; buffers are left out: their
  // statistics come from each rank's own samples.
  [[nodiscard]] int64_t Digest() const;

  // Before another state is written over this one, piece by piece: from here on it is a mixture that counts
  // as no step, and is not as it was made. Complete ends that. Not where layers are divided: `staged` knows
  // what it holds.
  void Tear();
  void Complete(int64_t completed_steps);
};

// On the first of the devices, with a replica on each of the others. The error names the field. The same
// parameters on every device. `ranks_in_pod`: copies of zero1 are kept in other pods.
[[nodiscard]] Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input,
                                                      std::span<const at::Device> devices,
                                                      int ranks_in_pod = 1);
// On the CPU.
[[nodiscard]] Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input);
// As it was made, before the first step.
[[nodiscard]] Result<void> StartAfresh(const api::TrainingSpec& spec, TrainingState& state);

}  // namespace lockstep::train
