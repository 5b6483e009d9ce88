#pragma once
// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm
// 2): the direction is that of AdamW, with the weight decay in it; each parameter moves by the learning rate
// times the norm of the parameter. So it needs whole parameters (optimizer.h).

#include "runtime/train/step/adam.h"

namespace lockstep::train {

class Lamb final : public WithAdamGroups {
 public:
  using WithAdamGroups::WithAdamGroups;

 private:
  void Update(int64_t step, double learning_rate) override;
};

}  // namespace lockstep::train
