#include <iostream>
#include <map>
#include <sstream>

#include "runtime/common/api/names.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/job_text.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

struct Use {
  std::string cpu;
  std::string memory;
};

Result<std::map<std::string, Use>> GetUse(const Kubectl& kubectl, const api::TrainingJob& job) {
  const Result<std::string> text =
      kubectl.Run({"top", "pod", "--no-headers", "--namespace=" + job.metadata.namespace_name,
                   "--selector=" + api::WorkerSelector(job.metadata.name)});
  if (!text.ok() && text.error().message.find("Metrics API not available") != std::string::npos) {
    return Error{ErrorCode::kUnsupported,
                 "this cluster measures no CPU and memory of pods: it has no metrics-server"};
  }
  if (!text.ok()) return text.error();
  std::map<std::string, Use> use;
  std::istringstream rows(*text);
  std::string pod;
  for (Use of; rows >> pod >> of.cpu >> of.memory;) use[pod] = of;
  return use;
}

}  // namespace

Result<int> Top(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(std::vector<PodRow> pods, GetPods(kubectl, job));
  const std::string speed = SpeedText(job);
  std::cout << name << ": " << (speed.empty() ? "does not train now" : speed) << std::endl;
  LOCKSTEP_TRY(auto use, GetUse(kubectl, job));
  const RankPlaces places = FindPlaces(kubectl, job);
  SortByRank(pods, places);
  std::vector<std::vector<std::string>> rows = {{"RANK", "POD", "CPU", "MEMORY", "NODE"}};
  for (const PodRow& pod : pods) {
    const Use& of = use[pod.name];  // metrics of a new pod may be missing
    rows.push_back({RanksText(places.RanksOf(pod.name)), pod.name, of.cpu, of.memory, pod.node});
  }
  for (const std::string& line : command_line::Columns(rows)) std::cout << line << "\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
