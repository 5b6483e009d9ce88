#pragma once
// Kubeflow's PyTorchJob as a DistributedTrainingJob. What it does with each field stands in field_table.h.
// Pure.

#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/convert/notice.h"
#include "runtime/convert/yaml_text.h"

namespace lockstep::convert {

struct ConvertedJob {
  Json job;
  Comments comments;  // where a person must look
  std::vector<Notice> notices;
};

[[nodiscard]] bool IsPyTorchJob(const Json& object);
[[nodiscard]] ConvertedJob ConvertPyTorchJob(const Json& object);

}  // namespace lockstep::convert
