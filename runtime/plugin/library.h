#pragma once
// Shared libraries of users, built against the SDK (runtime/sdk).

#include <string>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/sdk/lockstep/plugin.h"

namespace lockstep::plugin {

enum class Kind { kModel, kDataset };

// Loads the library, for good, and finds its part of that kind. kInvalidArgument, with the field below
// `section`, where it cannot be loaded, was built against another SDK or LibTorch, or does not know the name
// (the error lists those it knows). The step thread.
[[nodiscard]] Result<const PluginPart*> Find(const api::PluginSpec& spec, Kind kind,
                                             const std::string& section);

}  // namespace lockstep::plugin
