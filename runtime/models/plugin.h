#pragma once
// Models from a shared library that was built against the SDK (runtime/sdk).

#include "runtime/models/model.h"

namespace lockstep::models {

// Loads the library, for good. kInvalidArgument, with the field, where it cannot be loaded, was built against
// another SDK or LibTorch, does not know the name (the error lists those it knows), or its constructor
// throws.
[[nodiscard]] Result<std::shared_ptr<Model>> MakePluginModel(const api::PluginSpec& spec,
                                                             const ModelInput& input);

}  // namespace lockstep::models
