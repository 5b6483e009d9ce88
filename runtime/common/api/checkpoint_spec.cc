#include "runtime/common/api/checkpoint_spec.h"

#include "runtime/common/api/checkpoint_spec_fields.h"

namespace lockstep::api {

Json IntOrWordToJson(const ResumeFrom& resume) {
  switch (resume.mode) {
    case ResumeMode::kAuto: return "Auto";
    case ResumeMode::kNever: return "Never";
    case ResumeMode::kStep: return resume.step;
  }
  return {};
}

std::string IntOrWordFromJson(const Json& json, ResumeFrom& resume) {
  if (json == "Auto") {
    resume = {.mode = ResumeMode::kAuto, .step = 0};
  } else if (json == "Never") {
    resume = {.mode = ResumeMode::kNever, .step = 0};
  } else if (json.is_number_integer() && json.get<int64_t>() >= 0) {
    resume = {.mode = ResumeMode::kStep, .step = json.get<int64_t>()};
  } else {
    return "must be Auto, Never or the step of a checkpoint, not " + Truncate(DumpJson(json), 80);
  }
  return {};
}

CheckpointSpec CheckpointSpecFromJson(const Json& json, const std::string& path,
                                      std::vector<std::string>& violations) {
  return ReadFields<CheckpointSpec>(json, path, violations);
}

Json CheckpointSpecToJson(const CheckpointSpec& spec) { return WriteFields(spec); }

}  // namespace lockstep::api
