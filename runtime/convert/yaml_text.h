#pragma once
// A JSON value as the YAML that people write: block style, the keys that say what an object is first, short
// lists on one line. What api::ParseManifest reads from it is the same value. Pure.

#include <map>
#include <string>

#include "runtime/common/base/json.h"

namespace lockstep::convert {

// Text to stand above a field, by its path: "spec.worker.replicas", "spec.list[0].name".
using Comments = std::map<std::string, std::string>;

[[nodiscard]] std::string WriteYaml(const Json& value, const Comments& comments = {});

}  // namespace lockstep::convert
