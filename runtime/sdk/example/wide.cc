// A model of one's own, with a loss of its own: one wide hidden layer, and labels smoothed.

#include <lockstep/model.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

namespace {

class Wide final : public lockstep::Model {
 public:
  Wide(const lockstep::ModelInput& input, const lockstep::ModelOptions& options) {
    const auto found = options.find("width");
    const int64_t width = found == options.end() ? 256 : std::stoll(found->second);
    if (width < 1) throw std::invalid_argument("width must be at least 1, not " + found->second);
    int64_t features = 1;
    for (const int64_t extent : input.sample_shape) features *= extent;
    hidden_ = register_module("hidden", torch::nn::Linear(features, width));
    output_ = register_module("output", torch::nn::Linear(width, input.classes));
  }

  at::Tensor Forward(const at::Tensor& inputs) override {
    return output_->forward(hidden_->forward(inputs.flatten(1)).tanh());
  }

  at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(outputs, targets, {}, at::Reduction::Sum, /*ignore_index=*/-100,
                                  /*label_smoothing=*/0.05);
  }

 private:
  torch::nn::Linear hidden_ = nullptr;
  torch::nn::Linear output_ = nullptr;
};

}  // namespace

LOCKSTEP_PLUGIN(lockstep::PluginModelOf<Wide>("wide"))
