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

void CheckMethod(const TrainingSpec& training, Fields& fields) {
  const Compression compression = training.sync.compression;
  RefuseEnum(fields, compression == Compression::kPowersgd || compression == Compression::kTopk,
             "spec.training.sync.compression", compression, "none, bf16 or fp16");
}

}  // namespace

std::string UnsupportedField::ToString() const {
  return path + ": " + asked + " is not implemented yet; " + instead;
}

std::vector<UnsupportedField> FindUnsupported(const TrainingJobSpec& spec) {
  Fields fields;
  if (spec.training) {
    CheckModel(*spec.training, fields);
    CheckMethod(*spec.training, fields);
  }
  Refuse(fields, spec.nproc_per_node.mode == NprocMode::kGpu, "spec.nprocPerNode", "gpu",
         "use auto, cpu or a number");
  Refuse(fields, spec.observability.pod_monitor, "spec.observability.podMonitor", "true", "use false");
  return fields;
}

}  // namespace lockstep::api
