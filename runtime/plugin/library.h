#pragma once
// Shared libraries of users, built against the SDK (runtime/sdk).

#include <string>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/sdk/lockstep/plugin.h"

namespace lockstep::plugin {

enum class Kind { kModel, kDataset };

// Loads the library, which is never unloaded, and finds its part of that kind. kInvalidArgument, with the
// field below `section`: it cannot be loaded, was built against another SDK or LibTorch, or has no part of
// that name (the error lists the existing ones). Step thread.
[[nodiscard]] Result<const PluginPart*> Find(const api::PluginSpec& spec, Kind kind,
                                             const std::string& section);

}  // namespace lockstep::plugin
