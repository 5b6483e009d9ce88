#pragma once
// A YAML text as its documents, each as it was written. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::convert {

struct Document {
  std::string text;  // without the line of dashes before it
  Json value;        // null where there are only comments
};

// Refused: what api::ParseManifest refuses; the message has the line in the whole text.
[[nodiscard]] Result<std::vector<Document>> ReadDocuments(std::string_view text);

}  // namespace lockstep::convert
