#pragma once
// The models a manifest can name: single-device code, unaware of parallelism, behind the interface that
// users' own models have, too. One thread.

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/sdk/lockstep/model.h"

namespace lockstep::models {

// Initialised from `seed` alone: the same numbers in every process. Names of parameters are PyTorch's
// ("conv1.weight"). shared_ptr because torch::nn::Module registers its children that way. The error names the
// field.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeModel(const api::ModelSpec& spec, const ModelInput& input,
                                                       int64_t seed);

}  // namespace lockstep::models
