#pragma once
// Operations on the reduced gradient before the optimizer uses it: its norm, and the scaling that turns a sum
// over samples into a clipped mean. The numbers are equal on every rank, so no vote is needed. Gradients may
// be on several devices. LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace lockstep::train {

// Over all elements of all gradients.
[[nodiscard]] double SumOfSquares(const std::vector<at::Tensor>& gradients);

// The factor that turns a sum of gradients over `count` samples into their mean, clipped to `clip_norm`.
// `norm` is the norm of the mean.
[[nodiscard]] double FactorFor(double norm, double count, std::optional<double> clip_norm);

// Replaces the gradients, which are sums over `count` samples, by their mean, clipped to `clip_norm`. Returns
// the norm of the mean before clipping. If that is not finite, the gradients are left unchanged.
[[nodiscard]] double AverageAndClip(const std::vector<at::Tensor>& parameters, double count,
                                    std::optional<double> clip_norm);

}  // namespace lockstep::train
