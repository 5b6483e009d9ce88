#include <iostream>

#include "runtime/cli/commands.h"
#include "runtime/cli/manifest_file.h"

namespace lockstep::cli {

int Validate(const std::string& manifest) {
  const LoadedManifest loaded = LoadManifest(manifest);
  for (const std::string& problem : loaded.problems) std::cerr << manifest << ": " << problem << "\n";
  if (!loaded.problems.empty()) return 2;
  std::cout << manifest << ": " << loaded.job.metadata.name << " is valid\n";
  return 0;
}

}  // namespace lockstep::cli
