#pragma once
// The models that a manifest can name: single-device code without parallelism, behind the interface that user
// models also implement. One thread.

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/sdk/lockstep/model.h"

namespace lockstep::models {

// Initialised from `seed` alone: the same numbers in every process. Parameters have PyTorch's names
// ("conv1.weight"). shared_ptr because torch::nn::Module registers its children that way. Errors name the
// field.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeModel(const api::ModelSpec& spec, const ModelInput& input,
                                                       int64_t seed);

}  // namespace lockstep::models
