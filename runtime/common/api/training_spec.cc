#include "runtime/common/api/training_spec.h"

#include "runtime/common/api/training_spec_fields.h"

namespace lockstep::api {
namespace {

constexpr std::string_view kAfterScheme = "://";

}  // namespace

bool IsRemote(const DataSpec& spec) {
  return spec.path.starts_with("s3://") || spec.path.starts_with("gs://") || spec.path.starts_with("abfs://");
}

std::string RemotePath(const DataSpec& spec) {
  std::string path = spec.path.substr(spec.path.find(kAfterScheme) + kAfterScheme.size());
  while (path.ends_with('/')) path.pop_back();
  return path;
}

double BaseLearningRate(const TrainingSpec& spec) {
  const auto batch = static_cast<double>(spec.global_batch_size);
  return spec.optimizer.learning_rate * batch /
         static_cast<double>(spec.schedule.base_batch_size.value_or(spec.global_batch_size));
}

TrainingSpec TrainingSpecFromJson(const Json& json, const std::string& path,
                                  std::vector<std::string>& violations) {
  return ReadFields<TrainingSpec>(json, path, violations);
}

Json TrainingSpecToJson(const TrainingSpec& spec) { return WriteFields(spec); }

}  // namespace lockstep::api
