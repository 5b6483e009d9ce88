#pragma once
// A manifest of PyTorchJobs and other objects, as `lockstep convert` writes it. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/convert/notice.h"

namespace lockstep::convert {

struct NamedNotice {
  std::string object;  // "PyTorchJob mnist"
  Notice notice;
};

struct ConvertedManifest {
  std::string text;
  std::vector<Json> jobs;  // what became of the PyTorchJobs, for a check
  std::vector<NamedNotice> notices;
};

// Other objects stay as they are written. Refused: what is no YAML, and a text without a PyTorchJob.
[[nodiscard]] Result<ConvertedManifest> ConvertManifest(std::string_view text);

}  // namespace lockstep::convert
