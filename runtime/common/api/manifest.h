#pragma once
// Reads a manifest that no API server has validated: YAML (or JSON) text to JSON with the types of YAML 1.2.
// For `lockstep validate` and `lockstep run`. Pure; the only user of yaml-cpp in this folder.

#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::api {

// All non-empty documents of the text. Rejects text over 4 MiB, nesting over 64 levels, excessive expansion
// of aliases, duplicate keys, and keys that are not strings.
[[nodiscard]] Result<std::vector<Json>> ParseManifest(std::string_view text);
// The only DistributedTrainingJob in a text that may contain other objects.
[[nodiscard]] Result<Json> FindJobInManifest(std::string_view text);

}  // namespace lockstep::api
