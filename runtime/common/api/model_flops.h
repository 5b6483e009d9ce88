#pragma once
// What a model of the catalogue costs to train, from its section of the manifest. Pure.

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/common/api/training_spec.h"

namespace lockstep::api {

// Floating point operations (a multiplication and an addition are two) that one sample costs: those of the
// matrix products and convolutions of the forward pass, three times, as the backward pass has two products
// for each of them (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, 2.1). So defined, the
// utilization of the hardware compares with what others publish (Chowdhery et al., "PaLM", 2022, appendix B):
// attention counts in full, though a causal one needs half; norms, activations and what is computed again do
// not count. A sample of gpt is a sequence of `sample_shape` tokens.
//
// Absent for models of the user's own, and for samples that the model does not take.
[[nodiscard]] std::optional<double> TrainingFlopsPerSample(const ModelSpec& model,
                                                           std::span<const int64_t> sample_shape,
                                                           int64_t classes);

}  // namespace lockstep::api
