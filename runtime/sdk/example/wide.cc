// A custom model with its own loss: one wide hidden layer and label smoothing. Custom samples: generated
// images with one to four stripes.

#include <ATen/ops/empty.h>
#include <lockstep/plugin.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>

namespace {

int64_t Option(const lockstep::PluginOptions& options, const std::string& name, int64_t otherwise) {
  const auto found = options.find(name);
  const int64_t value = found == options.end() ? otherwise : std::stoll(found->second);
  if (value < 1) throw std::invalid_argument(name + " must be at least 1, not " + found->second);
  return value;
}

class Wide final : public lockstep::Model {
 public:
  Wide(const lockstep::ModelInput& input, const lockstep::PluginOptions& options) {
    const int64_t width = Option(options, "width", 256);
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

class Stripes final : public lockstep::Dataset {
 public:
  Stripes(const lockstep::DatasetInput& input, const lockstep::PluginOptions& options)
      : size_(Option(options, "samples", 4096) / (input.is_test ? 8 : 1)),
        seed_(2 * input.seed + (input.is_test ? 1 : 0)) {}

  int64_t size() const override { return size_; }
  int64_t classes() const override { return 4; }
  std::vector<int64_t> sample_shape() const override { return {1, kSide, kSide}; }

  lockstep::Samples Get(std::span<const int64_t> ids) const override {
    const auto count = static_cast<int64_t>(ids.size());
    lockstep::Samples samples{at::empty({count, 1, kSide, kSide}), at::empty({count}, at::kLong)};
    auto* pixel = samples.inputs.data_ptr<float>();
    auto* target = samples.targets.data_ptr<int64_t>();
    for (const int64_t id : ids) {
      std::seed_seq seed{seed_, static_cast<uint64_t>(id)};
      std::mt19937 random(seed);
      std::normal_distribution<float> noise(0, 0.5F);
      const int64_t stripes = *target++ = id % classes();
      for (int64_t i = 0; i < kSide * kSide; ++i) {
        const double angle = 2 * std::numbers::pi * static_cast<double>((stripes + 1) * (i % kSide)) / kSide;
        *pixel++ = static_cast<float>(std::sin(angle)) + noise(random);
      }
    }
    return samples;
  }

 private:
  static constexpr int64_t kSide = 16;
  const int64_t size_;
  const uint64_t seed_;
};

}  // namespace

LOCKSTEP_PLUGIN(lockstep::PluginModel<Wide>("wide"), lockstep::PluginDataset<Stripes>("stripes"))
