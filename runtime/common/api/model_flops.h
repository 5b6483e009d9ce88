#pragma once
// The cost of training a model of the catalogue, from its section of the manifest. Pure.

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/common/api/training_spec.h"

namespace lockstep::api {

// Floating point operations for one sample (a multiplication and an addition count as two). Counts the matrix
// products and convolutions of the forward pass three times, because the backward pass has two products for
// each of them (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, 2.1). With this definition
// the hardware utilization is comparable with published figures (Chowdhery et al., "PaLM", 2022, appendix B):
// attention counts in full, although causal attention needs half; norms, activations and recomputation do not
// count. A sample of gpt is a sequence of `sample_shape` tokens.
//
// Absent for models of the user's own, and for samples that the model does not accept.
[[nodiscard]] std::optional<double> TrainingFlopsPerSample(const ModelSpec& model,
                                                           std::span<const int64_t> sample_shape,
                                                           int64_t classes);

}  // namespace lockstep::api
