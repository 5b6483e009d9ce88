#pragma once
// What a step changes: completed steps, parameters, buffers and optimizer state. Everything else (position in
// the data, learning rate, random numbers) follows from the step. Owned by the step thread.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/train/optimizer.h"

namespace lockstep::train {

struct TrainingState {
  int64_t step = -1;                // completed steps; -1: freshly made, nobody has agreed to start from it
  int64_t evaluated_step = -1;      // the newest step whose evaluation is done
  std::shared_ptr<Model> model;     // shared_ptr by torch::nn::Module's design
  std::vector<at::Tensor> trained;  // the parameters that have a gradient
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Optimizer> optimizer;

  // All that a joining rank needs and a checkpoint holds, in the same order in every process.
  [[nodiscard]] std::vector<NamedTensor> Tensors() const;
  // Of parameters and optimizer state. Equal on all ranks after each step, since all apply the same gradient;
  // buffers are left out: their statistics come from each rank's own samples.
  [[nodiscard]] int64_t Digest() const;
};

// The error names the field.
[[nodiscard]] Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input);

}  // namespace lockstep::train
