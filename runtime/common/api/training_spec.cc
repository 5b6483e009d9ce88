#include "runtime/common/api/training_spec.h"

#include "runtime/common/api/training_spec_fields.h"

namespace lockstep::api {

TrainingSpec TrainingSpecFromJson(const Json& json, const std::string& path,
                                  std::vector<std::string>& violations) {
  return ReadFields<TrainingSpec>(json, path, violations);
}

Json TrainingSpecToJson(const TrainingSpec& spec) { return WriteFields(spec); }

}  // namespace lockstep::api
