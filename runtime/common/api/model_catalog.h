#pragma once
// The models that this version trains, for people: the list that `lockstep models` prints. Fields and
// defaults are those that manifests are read with. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"

namespace lockstep::api {

struct ModelField {
  std::string path;           // below spec.training.model
  std::string default_value;  // as JSON; empty: the field is required
};

struct ModelEntry {
  ModelName name = ModelName::kMlp;
  std::string what;
  std::string samples;  // that it takes
  std::vector<ModelField> fields;
};

[[nodiscard]] std::vector<ModelEntry> ModelCatalog();

}  // namespace lockstep::api
