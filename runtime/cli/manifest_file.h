#pragma once
// A manifest file as a job that this version can run, or everything that is wrong with it.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::cli {

struct LoadedManifest {
  api::TrainingJob job;
  // Each names its field and says what would be right; empty: the job can run.
  std::vector<std::string> problems;
};

// What people write for standard input instead of a file, and how errors name it.
inline constexpr std::string_view kStandardInput = "-";
[[nodiscard]] std::string NameOfInput(const std::string& file);
[[nodiscard]] Result<std::string> ReadInput(const std::string& file);

// The only job of a file.
[[nodiscard]] LoadedManifest LoadManifest(const std::string& path);
// The same of an object that is read already.
[[nodiscard]] LoadedManifest CheckManifest(const Json& object);

}  // namespace lockstep::cli
