#include <iostream>

#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/manifest_file.h"
#include "runtime/tools/convert/manifest.h"

namespace lockstep::cli {
namespace {

// The same validation as `lockstep validate`.
bool AreValid(const std::vector<Json>& jobs, const std::string& file) {
  bool are_valid = true;
  for (const Json& job : jobs) {
    for (const std::string& problem : CheckManifest(job).problems) {
      std::cerr << file << ": error: " << StringAt(job, {"metadata", "name"})
                << ": the converted job is not valid: " << problem << "\n";
      are_valid = false;
    }
  }
  return are_valid;
}

}  // namespace

int Convert(const ConvertArguments& arguments) {
  const std::string file = NameOfInput(arguments.manifest);
  const Result<std::string> text = ReadInput(arguments.manifest);
  if (!text.ok()) {
    std::cerr << file << ": " << text.error().message << "\n";
    return 2;
  }
  const Result<convert::ConvertedManifest> converted = convert::ConvertManifest(*text);
  if (!converted.ok()) {
    std::cerr << file << ": " << converted.error().message << "\n";
    return 2;
  }
  bool loses = false;
  for (const auto& [object, notice] : converted->notices) {
    const bool is_error = notice.severity == convert::Severity::kError;
    loses |= is_error;
    std::cerr << file << ": " << (is_error ? "error: " : "warning: ") << object << ": " << notice.path << ": "
              << notice.text << "\n";
  }
  if (loses && !arguments.force) {
    std::cerr << file
              << ": nothing is written, because the job would behave differently; --force writes it anyway\n";
    return 1;
  }
  std::cout << converted->text;
  return AreValid(converted->jobs, file) ? 0 : 1;
}

}  // namespace lockstep::cli
