#pragma once
// Stochastic gradient descent with momentum and Nesterov momentum, as torch.optim.SGD (optimizer.h).

#include <vector>

#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class Sgd final : public Optimizer {
 public:
  Sgd(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
      std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings);

 private:
  struct OfGroup {
    ParameterSettings settings;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> momentum;
  };

  void Update(int64_t step, double learning_rate) override;

  std::vector<OfGroup> groups_;
};

}  // namespace lockstep::train
