// The built-in model mlp as a plugin that takes its time: while the file that its option `while` names is there, each
// forward pass of the training waits. A job that a test does something to uses little of the machine meanwhile, and is
// done soon after the file is removed. Options: while (path), milliseconds (of each wait), hiddenSizes ("1024,512").

#include <lockstep/plugin.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

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

  void Wait() const {
    if (is_training() && std::filesystem::exists(while_)) std::this_thread::sleep_for(pause_);
  }

  const std::filesystem::path while_;
  const std::chrono::milliseconds pause_;
  std::vector<torch::nn::Linear> layers_;  // fc1, fc2, …
};

}  // namespace

LOCKSTEP_PLUGIN(lockstep::PluginModel<SlowMlp>("slow-mlp"))
