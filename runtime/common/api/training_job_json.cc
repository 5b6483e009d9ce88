#include "runtime/common/api/training_job_json.h"

#include <limits>

#include "runtime/common/api/training_job_fields.h"

namespace lockstep::api {
namespace {

TextMap TextMapAt(const Json& object, std::string_view key) {
  TextMap map;
  const Json* found = FindJson(object, {key});
  if (found == nullptr || !found->is_object()) return map;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) map[name] = value.get<std::string>();
  }
  return map;
}

std::optional<WallTime> TimeAt(const Json& object, std::string_view key) {
  const Result<WallTime> time = ParseTime(StringAt(object, {key}));
  return time ? std::optional(*time) : std::nullopt;
}

// Written by the API server, so read leniently.
ObjectMeta MetadataFromJson(const Json& json) {
  ObjectMeta metadata;
  metadata.name = StringAt(json, {"name"});
  metadata.namespace_name = StringAt(json, {"namespace"});
  metadata.uid = StringAt(json, {"uid"});
  metadata.resource_version = StringAt(json, {"resourceVersion"});
  metadata.generation = IntAt(json, {"generation"});
  metadata.creation_timestamp = TimeAt(json, "creationTimestamp");
  metadata.deletion_timestamp = TimeAt(json, "deletionTimestamp");
  metadata.labels = TextMapAt(json, "labels");
  metadata.annotations = TextMapAt(json, "annotations");
  if (const Json* finalizers = FindJson(json, {"finalizers"});
      finalizers != nullptr && finalizers->is_array()) {
    for (const Json& entry : *finalizers) {
      if (entry.is_string()) metadata.finalizers.push_back(entry.get<std::string>());
    }
  }
  return metadata;
}

}  // namespace

Json IntOrWordToJson(const NprocPerNode& nproc) {
  switch (nproc.mode) {
    case NprocMode::kAuto: return "auto";
    case NprocMode::kCpu: return "cpu";
    case NprocMode::kCount: return nproc.count;
  }
  return {};
}

std::string IntOrWordFromJson(const Json& json, NprocPerNode& nproc) {
  if (json == "auto") {
    nproc = {.mode = NprocMode::kAuto, .count = 0};
  } else if (json == "cpu") {
    nproc = {.mode = NprocMode::kCpu, .count = 0};
  } else if (json.is_number_integer() && json.get<int64_t>() >= 1 &&
             json.get<int64_t>() <= kMaxNprocPerNode) {
    nproc = {.mode = NprocMode::kCount, .count = json.get<int32_t>()};
  } else {
    return "must be auto, cpu or a number from 1 to " + std::to_string(kMaxNprocPerNode) + ", not " +
           Truncate(DumpJson(json), 80);
  }
  return {};
}

TrainingJob TrainingJobFromJson(const Json& object, std::vector<std::string>& violations) {
  static const Json absent = Json::object();
  TrainingJob job;
  JsonReader reader(object, "", violations);
  for (const std::string_view key : {"apiVersion", "kind", "metadata"}) (void)reader.Has(key);
  if (StringAt(object, {"apiVersion"}) != kApiVersion) {
    reader.Violation("apiVersion", "must be " + std::string(kApiVersion));
  }
  if (StringAt(object, {"kind"}) != kKind) reader.Violation("kind", "must be " + std::string(kKind));
  const Json* metadata = FindJson(object, {"metadata"});
  job.metadata = MetadataFromJson(metadata != nullptr ? *metadata : absent);
  if (reader.Has("spec")) {
    job.spec = ReadFields<TrainingJobSpec>(object.at("spec"), "spec", violations);
  } else {
    reader.Violation("spec", "is required");
  }
  if (reader.Has("status")) {
    // The operator writes the status: one from a newer operator must not fail a job.
    std::vector<std::string> passed_over;
    job.status = TrainingJobStatusFromJson(object.at("status"), passed_over);
  }
  reader.RejectUnknownKeys();
  return job;
}

TrainingJobStatus TrainingJobStatusFromJson(const Json& json, std::vector<std::string>& violations) {
  return ReadFields<TrainingJobStatus>(json, "status", violations);
}

Json TrainingJobStatusToJson(const TrainingJobStatus& status) { return WriteFields(status, 6); }

}  // namespace lockstep::api
