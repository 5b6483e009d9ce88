#include "runtime/common/api/unsupported.h"

#include <utility>

namespace lockstep::api {
namespace {

using Fields = std::vector<UnsupportedField>;

void Refuse(Fields& fields, bool is_asked, std::string path, std::string asked, std::string instead) {
  if (is_asked) fields.push_back({std::move(path), std::move(asked), std::move(instead)});
}

template <typename T>
std::string Text(T value) {
  return std::to_string(value);
}

// A value that differs from the only one that has a behaviour.
template <typename T>
void RefuseChange(Fields& fields, const std::string& path, T asked, T works) {
  Refuse(fields, asked != works, path, Text(asked), "leave it out or use " + Text(works));
}

template <typename E>
void RefuseEnum(Fields& fields, bool is_asked, const std::string& path, E asked, const std::string& choices) {
  Refuse(fields, is_asked, path, std::string(NameOf(asked)), "use " + choices);
}

void CheckModel(const TrainingSpec& training, Fields& fields) {
  if (!training.model.torchscript) return;
  const std::string& uri = training.model.torchscript->uri;
  const std::size_t colon = uri.find("://");
  Refuse(fields, colon != std::string::npos && !uri.starts_with("file://"),
         "spec.training.model.torchscript.uri", uri.substr(0, colon + 3),
         "use a path in the container, or file:///");
}

bool IsInAzure(const std::string& uri) { return uri.starts_with("abfs://"); }

void CheckData(const DataSpec& data, Fields& fields) {
  Refuse(fields, IsInAzure(data.path), "spec.training.data.path",
         data.path.substr(0, data.path.find(':') + 3), "use s3://, gs:// or a folder");
}

void CheckMethod(const TrainingSpec& training, Fields& fields) {
  const Compression compression = training.sync.compression;
  RefuseEnum(fields, compression == Compression::kPowersgd || compression == Compression::kTopk,
             "spec.training.sync.compression", compression, "none, bf16 or fp16");
}

void CheckCheckpoint(const CheckpointSpec& checkpoint, Fields& fields) {
  const std::string& uri = checkpoint.uri;
  Refuse(fields, IsInAzure(uri), "spec.checkpoint.uri", uri.substr(0, uri.find(':') + 3),
         "use s3://, gs:// or file:///");
}

}  // namespace

std::string UnsupportedField::ToString() const {
  return path + ": " + asked + " is not implemented yet; " + instead;
}

std::vector<UnsupportedField> FindUnsupported(const TrainingJobSpec& spec) {
  Fields fields;
  if (spec.training) {
    CheckModel(*spec.training, fields);
    CheckData(spec.training->data, fields);
    CheckMethod(*spec.training, fields);
  }
  Refuse(fields, spec.nproc_per_node.mode == NprocMode::kGpu, "spec.nprocPerNode", "gpu",
         "use auto, cpu or a number");
  if (spec.checkpoint) CheckCheckpoint(*spec.checkpoint, fields);
  Refuse(fields, spec.observability.pod_monitor, "spec.observability.podMonitor", "true", "use false");
  return fields;
}

}  // namespace lockstep::api
