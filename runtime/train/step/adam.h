#pragma once
// Adam (Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization") and AdamW (Loshchilov and Hutter
// 2019, "Decoupled Weight Decay Regularization"), as torch.optim.Adam and torch.optim.AdamW (optimizer.h).

#include <vector>

#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/same_settings.h"

namespace lockstep::train {

// Parameters with equal settings, and the moving averages of their gradients and of the squares of these.
struct AdamGroup {
  ParameterSettings settings;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> mean;
  std::vector<at::Tensor> square;
};

// Each list has one tensor for each of all parameters.
[[nodiscard]] AdamGroup AdamGroupOf(const SameSettings& group, const std::vector<at::Tensor>& parameters,
                                    const std::vector<at::Tensor>& mean,
                                    const std::vector<at::Tensor>& square);

enum class WeightDecay { kInGradient, kDecoupled };

// One step, whose number starts at 0.
void UpdateWithAdam(const AdamGroup& group, const api::OptimizerSpec& spec, WeightDecay weight_decay,
                    int64_t step, double learning_rate);

// An optimizer whose state is Adam's, for all parameters.
class WithAdamGroups : public Optimizer {
 public:
  WithAdamGroups(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
                 std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings);

 protected:
  [[nodiscard]] const std::vector<AdamGroup>& groups() const { return groups_; }

 private:
  std::vector<AdamGroup> groups_;
};

class Adam final : public WithAdamGroups {
 public:
  using WithAdamGroups::WithAdamGroups;

 private:
  void Update(int64_t step, double learning_rate) override;
};

}  // namespace lockstep::train
