#pragma once
// Small trainings for pipelines, and one process that computes the same.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/train/step/gradients.h"
#include "tests/unit/runtime/train/token_folder.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {

// Without dropout, so that one process with the whole batch draws nothing else.
inline api::TrainingSpec Training(api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;
  spec.strategy = strategy;
  spec.pipeline.stages = stages;
  spec.optimizer.learning_rate = 0.1;
  return spec;
}

inline api::TrainingSpec MlpTraining(api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = Training(strategy, stages);
  spec.model.name = api::ModelName::kMlp;
  spec.model.mlp.hidden_sizes = {40, 30, 20};
  return spec;
}

inline api::TrainingSpec GptTraining(const TokenFolder& folder, api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = Training(strategy, stages);
  TrainGptOn(folder, spec);
  return spec;
}

// One process with the whole batch of each step, implemented as simply as possible.
class Reference {
 public:
  explicit Reference(api::TrainingSpec spec) : spec_(std::move(spec)) {
    spec_.strategy = api::Strategy::kDdp;
    state_ = std::move(MakeTrainingState(spec_, {spec_.data.synthetic.shape, 3})).value();
    state_->step = 0;
  }

  void Step(const data::TrainingSamples& samples) {
    const at::AutoGradMode with_gradients(true);
    const int64_t count = samples.plan().CountOf(state_->step);
    const data::Batch batch = samples.Get({state_->step, 0, count});
    ReplicatedModel& replicated = testing::ReplicatedOf(*state_);
    for (const at::Tensor& parameter : replicated.trained()) parameter.mutable_grad().reset();
    const at::Tensor loss = state_->model->LossSum(state_->model->Forward(batch.inputs), batch.targets);
    loss.backward();
    loss_ = loss.item<double>() / static_cast<double>(count);
    norm_ = AverageAndClip(replicated.trained(), static_cast<double>(count), spec_.optimizer.clip_norm);
    LOCKSTEP_CHECK(replicated.Update(nullptr, spec_.optimizer.learning_rate).ok());
    ++state_->step;
  }
  [[nodiscard]] const TrainingState& state() const { return *state_; }
  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] double norm() const { return norm_; }

 private:
  api::TrainingSpec spec_;
  std::unique_ptr<TrainingState> state_;
  double loss_ = 0;
  double norm_ = 0;
};

inline double RelativeError(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / (expected.norm() + 1e-12)).item<double>();
}

inline double WorstOfHeld(const TrainingState& state, const TrainingState& expected) {
  double worst = 0;
  const std::vector<NamedTensor> all = expected.Tensors();
  const std::vector<NamedTensor> mine = state.Tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (mine[i].name != all[i].name) return 1;
    const bool is_stand_in = mine[i].tensor.storage().nbytes() < mine[i].tensor.nbytes();
    if (is_stand_in) continue;
    const double error = RelativeError(mine[i].tensor, all[i].tensor);
    if (error > 1e-5)
      std::fprintf(stderr, "%s: relative error %.2g, of %.2g\n", all[i].name.c_str(), error,
                   all[i].tensor.norm().item<double>());
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace lockstep::train
