#pragma once
// Locates where a step's loss or gradients became non-finite, so that the log of a skipped step or of a
// diverged training names the rank and the layer. Step thread; LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

// What was found in the share of one rank.
struct NotFinite {
  bool loss = false;
  // Index of the parameter whose gradient is not finite (or so large that its norm is not); -1: none. The
  // backward pass runs from the last layer to the first, and a non-finite gradient makes all following ones
  // non-finite, so the parameter nearest to the loss is the origin.
  int64_t parameter = -1;

  [[nodiscard]] bool any() const { return loss || parameter >= 0; }
};

// Adds the findings from the gradients of `loss` with respect to `parameters` to `found`. Does not change
// their .grad.
void LookForNotFinite(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, NotFinite& found);

// "rank 1: loss, gradient of fc2.weight; rank 3: gradient of conv1.bias"
[[nodiscard]] std::string Describe(const std::vector<NotFinite>& of_ranks,
                                   const std::vector<std::string>& parameter_names);

}  // namespace lockstep::train
