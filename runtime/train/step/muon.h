#pragma once
// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), as torch.optim.Muon
// with adjust_lr_fn="match_rms_adamw" (Liu et al. 2025, "Muon is Scalable for LLM Training"): the update of a
// matrix is an orthogonal matrix near its momentum, so all its directions are learnt at the same speed. That
// needs whole parameters (optimizer.h). The size of the update is that of AdamW's, so one learning rate
// serves both: parameters without use_muon (parameter_groups.h) are updated as by AdamW.
//
// Each slot has a tensor for every parameter, so that strategies can divide the state of any optimizer: the
// first has the momentum of a matrix or the first moment of AdamW, the second is zero for a matrix. The first
// is not called exp_avg: AdamW would divide by those zeros if it restored it.

#include <vector>

#include "runtime/train/step/adam.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class Muon final : public Optimizer {
 public:
  Muon(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
       std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings);

 private:
  struct Matrix {
    ParameterSettings settings;
    at::Tensor parameter;
    at::Tensor momentum;
  };

  void Update(int64_t step, double learning_rate) override;
  void UpdateMatrix(const Matrix& matrix, double learning_rate) const;

  std::vector<Matrix> matrices_;
  std::vector<AdamGroup> others_;
};

}  // namespace lockstep::train
