#include <iostream>

#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"
#include "runtime/tools/kubectl_plugin/scaling_hints.h"

namespace lockstep::kubectl_plugin {

Result<int> Scaling(const Kubectl& kubectl, const ScalingArguments& arguments) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, arguments.job));
  const cli::ScalingHints hints = ScalingHintsFor(job);
  if (arguments.as_json) {
    std::cout << cli::ScalingToJson(job.status.scaling, hints).dump(2) << "\n";
    return 0;
  }
  for (const std::string& line : cli::ScalingText(job.status.scaling, hints, SystemClock().Now()))
    std::cout << line << "\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
