#pragma once
// What cannot be combined in spec.training, as one table. ValidateTraining reports it, and the definition has a rule
// for each row (crd_test.cc compares them). Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/api/violations.h"

namespace lockstep::api {

// `path`: of spec.training, for messages.
[[nodiscard]] Violations FindExclusions(const TrainingSpec& training, const std::string& path);

// A rule of the definition, at spec.training.
struct ExclusionRule {
  std::string rule;  // in CEL: the combination is valid
  std::string message;
  std::string field_path;
};

[[nodiscard]] std::vector<ExclusionRule> ExclusionRules();

}  // namespace lockstep::api
