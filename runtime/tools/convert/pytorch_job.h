#pragma once
// Converts Kubeflow's PyTorchJob to a DistributedTrainingJob. field_table.h lists the conversion of each
// field. Pure.

#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/tools/convert/notice.h"
#include "runtime/tools/convert/yaml_text.h"

namespace lockstep::convert {

struct ConvertedJob {
  Json job;
  Comments comments;  // where the user must check the result
  std::vector<Notice> notices;
};

[[nodiscard]] bool IsPyTorchJob(const Json& object);
[[nodiscard]] ConvertedJob ConvertPyTorchJob(const Json& object);

}  // namespace lockstep::convert
