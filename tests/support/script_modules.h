#pragma once
// Modules of TorchScript, as torch.jit.script would make them, built without Python. Test threads.

#include <torch/script.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

// A module with `forward` as in Python; names of tensors have no dots here.
inline torch::jit::Module ScriptModule(
    const std::string& forward, const Tensors& parameters = {}, const Tensors& buffers = {},
    const std::vector<std::pair<std::string, torch::jit::Module>>& children = {}) {
  torch::jit::Module module("__torch__.Module");
  module.register_attribute("training", c10::BoolType::get(), true);
  for (const auto& [name, tensor] : parameters)
    module.register_parameter(name, tensor.detach().clone().set_requires_grad(tensor.is_floating_point()),
                              false);
  for (const auto& [name, tensor] : buffers) module.register_buffer(name, tensor);
  for (const auto& [name, child] : children) module.register_module(name, child);
  module.define("def forward(self, x):\n  " + forward + "\n");
  return module;
}

inline torch::jit::Module ScriptLinear(const at::Tensor& weight, const at::Tensor& bias) {
  return ScriptModule("return torch.linear(x, self.weight, self.bias)", {{"weight", weight}, {"bias", bias}});
}

inline torch::jit::Module ScriptConvolution(const at::Tensor& weight, const at::Tensor& bias) {
  return ScriptModule("return torch.conv2d(x, self.weight, self.bias, [1, 1], [1, 1], [1, 1], 1)",
                      {{"weight", weight}, {"bias", bias}});
}

inline torch::jit::Module ScriptBatchNorm(int64_t channels) {
  return ScriptModule(
      "if self.training:\n"
      "    self.num_batches_tracked.add_(1)\n"
      "  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, "
      "self.training, 0.1, "
      "1e-05, True)",
      {{"weight", at::ones({channels})}, {"bias", at::zeros({channels})}},
      {{"running_mean", at::zeros({channels})},
       {"running_var", at::ones({channels})},
       {"num_batches_tracked", at::zeros({}, at::kLong)}});
}

// Of images [1, 28, 28]: convolution, norm, pooling, dropout, and one value for each of ten classes.
inline torch::jit::Module ScriptNormCnn() {
  const torch::nn::Conv2d convolution(1, 8, 3);
  const torch::nn::Linear output(8 * 14 * 14, 10);
  return ScriptModule(
      "x = torch.max_pool2d(torch.relu(self.bn1.forward(self.conv1.forward(x))), [2, 2])\n"
      "  return self.fc1.forward(torch.dropout(x.flatten(1), 0.1, self.training))",
      {}, {},
      {{"conv1", ScriptConvolution(convolution->weight, convolution->bias)},
       {"bn1", ScriptBatchNorm(8)},
       {"fc1", ScriptLinear(output->weight, output->bias)}});
}

}  // namespace lockstep::test
