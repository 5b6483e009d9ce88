#include <iostream>

#include "runtime/common/api/profile_window.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/command_line/text.h"
#include "runtime/tools/kubectl_plugin/change_rules.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {

Result<int> Profile(const Kubectl& kubectl, const std::string& name, int steps) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(MayProfile(job));
  // A new value is a new request.
  const std::string request =
      std::to_string(steps) + " " + FormatTime(SystemClock().Now()) + " " + RandomHex(4);
  LOCKSTEP_TRY(kubectl.Run(
      {"annotate", kJobs, name, "--overwrite", std::string(api::kAnnotationProfile) + "=" + request}));
  std::cout << name << " is asked to record its next " << command_line::CountText(steps, "step")
            << "; each rank stores a trace below " << job.spec.checkpoint->uri << "/profile\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
