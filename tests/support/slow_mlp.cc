// The built-in model mlp as a plugin whose forward passes in training wait while the file of its option `while` exists.
// A job uses little of the processors while a test acts on it, and completes soon after the test has removed the file.
// Options: while (path), milliseconds (of each wait), hiddenSizes ("1024,512").

#include <lockstep/plugin.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>

namespace {

class SlowMlp final : public lockstep::Model {
 public:
  SlowMlp(const lockstep::ModelInput& input, const lockstep::PluginOptions& options)
      : while_(options.at("while")), pause_(std::stoll(options.at("milliseconds"))) {
    int64_t width = 1;
    for (const int64_t extent : input.sample_shape) width *= extent;
    std::istringstream sizes(options.at("hiddenSizes"));
    for (std::string size; std::getline(sizes, size, ',');) Add(width, std::stoll(size));
    Add(width, input.classes);
  }

  std::vector<lockstep::Layer> Layers() override {
    std::vector<lockstep::Layer> layers;
    for (torch::nn::Linear& linear : layers_) {
      const bool is_first = layers.empty();
      const bool is_last = layers.size() + 1 == layers_.size();
      const auto forward = [this, linear = linear.get(), is_first, is_last](const at::Tensor& inputs) {
        if (is_first) Wait();
        const at::Tensor x = linear->forward(inputs.flatten(1));
        return is_last ? x : x.relu_();
      };
      layers.push_back({forward, {linear.ptr()}});
    }
    return layers;
  }

 private:
  void Add(int64_t& width, int64_t size) {
    const std::string name = "fc" + std::to_string(layers_.size() + 1);
    layers_.push_back(register_module(name, torch::nn::Linear(width, size)));
    width = size;
  }

  // The wait is the purpose of this model: it makes a step last. No test synchronises by it.
  void Wait() const {
    if (is_training() && std::filesystem::exists(while_)) std::this_thread::sleep_for(pause_);
  }

  const std::filesystem::path while_;
  const std::chrono::milliseconds pause_;
  std::vector<torch::nn::Linear> layers_;  // fc1, fc2, …
};

}  // namespace

LOCKSTEP_PLUGIN(lockstep::PluginModel<SlowMlp>("slow-mlp"))
