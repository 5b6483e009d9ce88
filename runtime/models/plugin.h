#pragma once
// Models from a shared library that was built against the SDK (runtime/sdk).

#include "runtime/models/model.h"

namespace lockstep::models {

// kInvalidArgument, with the field: the library is unusable (runtime/plugin), or the model's constructor
// throws.
[[nodiscard]] Result<std::shared_ptr<Model>> MakePluginModel(const api::PluginSpec& spec,
                                                             const ModelInput& input);

}  // namespace lockstep::models
