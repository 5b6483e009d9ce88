#pragma once
// The reduced gradient before it is used: how long it is, and the scaling that turns a sum over samples into
// the mean and bounds it. Equal numbers on every rank, so no vote is needed. LibTorch's exceptions pass
// through.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace lockstep::train {

// Of all elements of all gradients.
[[nodiscard]] double SumOfSquares(const std::vector<at::Tensor>& gradients);

// By what a sum of gradients over `count` samples is multiplied, to be their mean and no longer than
// `clip_norm`. `norm` is that of the mean.
[[nodiscard]] double FactorFor(double norm, double count, std::optional<double> clip_norm);

// Makes the gradients, sums over `count` samples, their mean, shortened to `clip_norm` where it is longer.
// Returns the norm of the mean before clipping; where that is not finite, the gradients are left as they are.
[[nodiscard]] double AverageAndClip(const std::vector<at::Tensor>& parameters, double count,
                                    std::optional<double> clip_norm);

}  // namespace lockstep::train
