#pragma once
// Reads a manifest that no API server has seen: YAML (or JSON) text to JSON with the types of YAML 1.2. For
// `lockstep validate` and `lockstep run`. Pure; the only user of yaml-cpp in this folder.

#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::api {

// Every document of the text that is not empty. Refused: text over 4 MiB, nesting over 64 levels, expansion
// of aliases beyond a bound, duplicate keys, keys that are not text.
[[nodiscard]] Result<std::vector<Json>> ParseManifest(std::string_view text);
// The one DistributedTrainingJob in a text that may hold other objects beside it.
[[nodiscard]] Result<Json> FindJobInManifest(std::string_view text);

}  // namespace lockstep::api
