#pragma once
// Converts a manifest of PyTorchJobs and other objects for `lockstep convert`. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/tools/convert/notice.h"

namespace lockstep::convert {

struct NamedNotice {
  std::string object;  // "PyTorchJob mnist"
  Notice notice;
};

struct ConvertedManifest {
  std::string text;
  std::vector<Json> jobs;  // the converted PyTorchJobs, for validation
  std::vector<NamedNotice> notices;
};

// Other objects keep their text. Rejects text that is not YAML, and text without a PyTorchJob.
[[nodiscard]] Result<ConvertedManifest> ConvertManifest(std::string_view text);

}  // namespace lockstep::convert
