#pragma once
// Reads a manifest file as a job that this version can run, or returns all of its problems.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::cli {

struct LoadedManifest {
  api::TrainingJob job;
  // Each names its field and says which values are valid; empty: the job can run.
  std::vector<std::string> problems;
};

// Stands for standard input instead of a file, also in error messages.
inline constexpr std::string_view kStandardInput = "-";
[[nodiscard]] std::string NameOfInput(const std::string& file);
[[nodiscard]] Result<std::string> ReadInput(const std::string& file);

// The only job of a file.
[[nodiscard]] LoadedManifest LoadManifest(const std::string& path);
// The same for an object that was already read.
[[nodiscard]] LoadedManifest CheckManifest(const Json& object);

}  // namespace lockstep::cli
