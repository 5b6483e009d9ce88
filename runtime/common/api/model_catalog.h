#pragma once
// The models that this version trains, as `lockstep models` prints them. Fields and defaults come from the
// descriptions that manifests are read with. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"

namespace lockstep::api {

struct ModelField {
  std::string path;           // below spec.training.model
  std::string default_value;  // JSON; empty: the field is required
};

struct ModelEntry {
  ModelName name = ModelName::kMlp;
  std::string what;
  std::string samples;  // which samples it takes
  std::vector<ModelField> fields;
};

[[nodiscard]] std::vector<ModelEntry> ModelCatalog();

}  // namespace lockstep::api
