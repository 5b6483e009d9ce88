#pragma once
// Where a step's loss or gradient stopped being finite, so that a skipped step and a training that diverged
// name the rank and the layer to look at. Step thread; LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

// In the share of one rank.
struct NotFinite {
  bool loss = false;
  // Index of the parameter whose gradient is not finite, or too long for its norm to be; -1: none. Gradients
  // are made from the last layer to the first and spoil those after them, so the one nearest to the loss is
  // where it began.
  int64_t parameter = -1;

  [[nodiscard]] bool any() const { return loss || parameter >= 0; }
};

// Adds what the gradients of `loss` with respect to `parameters` show. Their own gradients stay as they are.
void LookForNotFinite(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, NotFinite& found);

// "rank 1: loss, gradient of fc2.weight; rank 3: gradient of conv1.bias"
[[nodiscard]] std::string Describe(const std::vector<NotFinite>& of_ranks,
                                   const std::vector<std::string>& parameter_names);

}  // namespace lockstep::train
