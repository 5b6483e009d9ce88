#include <iostream>

#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/event_table.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {

Result<int> Events(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(const std::string text,
               kubectl.Run({"get", "events", "--namespace=" + job.metadata.namespace_name, "--output=json"}));
  LOCKSTEP_TRY(const Json list, ParseJson(text));
  const command_line::Lines lines = EventTable(list, job, SystemClock().Now());
  if (lines.empty()) std::cout << "no events of " << name << "; the cluster keeps them for an hour\n";
  for (const std::string& line : lines) std::cout << line << "\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
