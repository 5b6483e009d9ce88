#pragma once
// What the schema knows and this version does not do yet. Such a field is refused with a clear message, never
// silently ignored; a line leaves this list in the commit that brings the behaviour. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::api {

struct UnsupportedField {
  std::string path;     // spec.training.model.name
  std::string asked;    // resnet50
  std::string instead;  // use mlp or cnn

  // "spec.training.model.name: resnet50 is not implemented yet; use mlp or cnn"
  [[nodiscard]] std::string ToString() const;
};

[[nodiscard]] std::vector<UnsupportedField> FindUnsupported(const TrainingJobSpec& spec);

}  // namespace lockstep::api
