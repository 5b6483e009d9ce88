#include "runtime/tools/cli/manifest_file.h"

#include "runtime/common/api/manifest.h"
#include "runtime/common/api/training_job_json.h"
#include "runtime/common/api/validate.h"
#include "runtime/common/base/file.h"

namespace lockstep::cli {

std::string NameOfInput(const std::string& file) { return file == kStandardInput ? "standard input" : file; }

Result<std::string> ReadInput(const std::string& file) {
  return ReadFile(file == kStandardInput ? "/dev/stdin" : file);
}

LoadedManifest LoadManifest(const std::string& path) {
  LoadedManifest loaded;
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) {
    loaded.problems.push_back(text.error().message);
    return loaded;
  }
  const Result<Json> object = api::FindJobInManifest(*text);
  if (!object.ok()) {
    loaded.problems.push_back(object.error().message);
    return loaded;
  }
  return CheckManifest(*object);
}

LoadedManifest CheckManifest(const Json& object) {
  LoadedManifest loaded;
  loaded.job = api::TrainingJobFromJson(object, loaded.problems);
  if (!loaded.problems.empty()) return loaded;
  loaded.problems = api::Validate(loaded.job);
  return loaded;
}

}  // namespace lockstep::cli
