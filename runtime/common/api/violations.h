#pragma once
// Violations of a manifest, one line each: the path of the field, and which values are valid.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::api {

using Violations = std::vector<std::string>;

inline void Add(Violations& violations, std::string_view path, std::string_view problem) {
  violations.push_back(std::string(path) + ": " + std::string(problem));
}

}  // namespace lockstep::api
