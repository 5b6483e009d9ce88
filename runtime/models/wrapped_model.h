#pragma once
// The base of models that change how the layers of another model are computed. It has the parameters and
// buffers of that model, with their names. One thread.

#include <memory>

#include "runtime/sdk/lockstep/model.h"

namespace lockstep::models {

class WrappedModel : public Model {
 public:
  explicit WrappedModel(std::shared_ptr<Model> model);

  void train(bool on) override;
  [[nodiscard]] at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return model_->LossSum(outputs, targets);
  }
  [[nodiscard]] double CountRight(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return model_->CountRight(outputs, targets);
  }

 private:
  const std::shared_ptr<Model> model_;  // by torch::nn::Module's design
};

}  // namespace lockstep::models
