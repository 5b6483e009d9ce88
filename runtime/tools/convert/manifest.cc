#include "runtime/tools/convert/manifest.h"

#include <utility>

#include "runtime/tools/convert/documents.h"
#include "runtime/tools/convert/pytorch_job.h"
#include "runtime/tools/convert/yaml_text.h"

namespace lockstep::convert {
namespace {

constexpr std::string_view kVersion = "kubeflow.org/v1";

std::string NameOf(const Json& object) {
  const std::string kind = StringAt(object, {"kind"}, "an object without kind");
  const std::string name = StringAt(object, {"metadata", "name"});
  return name.empty() ? kind : kind + " " + name;
}

class Manifest {
 public:
  void Add(const Document& document) {
    if (document.value.is_null()) return Append(document.text);
    // The output of `kubectl get pytorchjobs -o yaml`.
    const Json* items = FindJson(document.value, {"items"});
    if (StringAt(document.value, {"kind"}).ends_with("List") && items != nullptr && items->is_array()) {
      for (const Json& item : *items) Add(Document{WriteYaml(item), item});
    } else if (IsPyTorchJob(document.value)) {
      AddJob(document.value);
    } else {
      Say(document.value, {Severity::kWarning, "kind", "is passed on as it is"});
      Append(document.text);
    }
  }

  ConvertedManifest Take() && { return std::move(result_); }

 private:
  void AddJob(const Json& object) {
    ConvertedJob converted = ConvertPyTorchJob(object);
    for (const Notice& notice : converted.notices) Say(object, notice);
    if (StringAt(object, {"apiVersion"}) != kVersion)
      Say(object, {Severity::kError, "apiVersion", "must be " + std::string(kVersion)});
    Append(WriteYaml(converted.job, converted.comments));
    result_.jobs.push_back(std::move(converted.job));
  }

  void Say(const Json& object, const Notice& notice) { result_.notices.push_back({NameOf(object), notice}); }

  void Append(const std::string& text) {
    if (std::exchange(has_text_, true)) result_.text += "---\n";
    result_.text += text;
    if (!text.empty() && text.back() != '\n') result_.text += '\n';
  }

  ConvertedManifest result_;
  bool has_text_ = false;
};

}  // namespace

Result<ConvertedManifest> ConvertManifest(std::string_view text) {
  LOCKSTEP_TRY(const std::vector<Document> documents, ReadDocuments(text));
  Manifest manifest;
  for (const Document& document : documents) manifest.Add(document);
  ConvertedManifest converted = std::move(manifest).Take();
  if (converted.jobs.empty()) {
    return Error{ErrorCode::kInvalidArgument, "holds no PyTorchJob of " + std::string(kVersion)};
  }
  return converted;
}

}  // namespace lockstep::convert
