#pragma once
// Writes a JSON value as readable YAML: block style, identifying keys first, short lists on one line.
// api::ParseManifest reads the same value from it. Pure.

#include <map>
#include <string>

#include "runtime/common/base/json.h"

namespace lockstep::convert {

// Comments above fields, by path: "spec.worker.replicas", "spec.list[0].name".
using Comments = std::map<std::string, std::string>;

[[nodiscard]] std::string WriteYaml(const Json& value, const Comments& comments = {});

}  // namespace lockstep::convert
