#pragma once
// Splits a YAML text into its documents and keeps the original text of each. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::convert {

struct Document {
  std::string text;  // without the preceding line of dashes
  Json value;        // null if there are only comments
};

// Rejects what api::ParseManifest rejects; the message has the line in the whole text.
[[nodiscard]] Result<std::vector<Document>> ReadDocuments(std::string_view text);

}  // namespace lockstep::convert
