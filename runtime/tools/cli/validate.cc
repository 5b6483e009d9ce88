#include <iostream>

#include "runtime/common/api/manifest.h"
#include "runtime/common/api/training_job.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::cli {
namespace {

// The objects of all documents, and the items of lists, as in `kubectl get --output=yaml`.
std::vector<Json> ObjectsIn(const std::vector<Json>& documents) {
  std::vector<Json> objects;
  for (const Json& document : documents) {
    const Json* items = FindJson(document, {"items"});
    if (StringAt(document, {"kind"}).ends_with("List") && items != nullptr && items->is_array()) {
      objects.insert(objects.end(), items->begin(), items->end());
    } else {
      objects.push_back(document);
    }
  }
  return objects;
}

// True also if the kind is misspelt. A file may contain other objects, which are not checked.
bool IsJob(const Json& object) {
  return StringAt(object, {"kind"}) == api::kKind || StringAt(object, {"apiVersion"}) == api::kApiVersion;
}

bool Report(const std::string& where, const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) std::cerr << where << ": " << problem << "\n";
  return problems.empty();
}

// "document 2 (mnist)".
std::string NameOf(std::size_t index, const Json& object) {
  const std::string name = StringAt(object, {"metadata", "name"});
  return "document " + std::to_string(index + 1) + (name.empty() ? "" : " (" + name + ")");
}

bool IsValid(const std::string& input) {
  const std::string file = NameOfInput(input);
  const Result<std::string> text = ReadInput(input);
  if (!text.ok()) return Report(file, {text.error().message});
  const Result<std::vector<Json>> documents = api::ParseManifest(*text);
  if (!documents.ok()) return Report(file, {documents.error().message});
  const std::vector<Json> objects = ObjectsIn(*documents);
  bool is_valid = true;
  bool has_jobs = false;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (!IsJob(objects[i])) continue;
    has_jobs = true;
    const LoadedManifest loaded = CheckManifest(objects[i]);
    const std::string where = objects.size() == 1 ? file : file + ": " + NameOf(i, objects[i]);
    is_valid &= Report(where, loaded.problems);
    if (loaded.problems.empty()) std::cout << file << ": " << loaded.job.metadata.name << " is valid\n";
  }
  if (has_jobs) return is_valid;
  return Report(file, {"has no " + std::string(api::kKind)});
}

}  // namespace

int Validate(const std::vector<std::string>& files) {
  bool are_valid = true;
  for (const std::string& file : files) are_valid &= IsValid(file);
  return are_valid ? 0 : 1;
}

}  // namespace lockstep::cli
