#pragma once
// Converts the pod template of a PyTorchJob's replicas to spec.worker.template. Pure.

#include <cstddef>
#include <string>

#include "runtime/common/base/json.h"
#include "runtime/tools/convert/launch_command.h"
#include "runtime/tools/convert/notice.h"

namespace lockstep::convert {

struct PodTemplate {
  Json value;
  std::string container_name;  // of the trainer
  std::string trainer;         // its path: "spec.containers[0]"
  Launch launch;
  int gpus = 0;  // from the limits of the trainer
  bool host_network = false;
  Notices notices;
};

// `path`: that of `theirs`, for notices. `container_name`: the new name of the trainer.
[[nodiscard]] PodTemplate ConvertTemplate(const Json& theirs, const std::string& path,
                                          const std::string& container_name);

// Whether something else refers to the container by its name, or already has the new name.
[[nodiscard]] bool MustKeepName(const Json& spec);

}  // namespace lockstep::convert
