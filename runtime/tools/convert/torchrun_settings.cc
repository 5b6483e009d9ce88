#include "runtime/tools/convert/torchrun_settings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::convert {
namespace {

constexpr int64_t kDefaultKeepAlive = 5;  // the default of torchrun
constexpr int64_t kDefaultAttempts = 3;

// The definition requires a string; users also write numbers.
std::string TakeNproc(Conversion& job, std::string_view field) {
  const Json* value = job.reader.Take(field);
  if (value == nullptr) return "";
  return value->is_string() ? value->get<std::string>() : DumpJson(*value);
}

// Kubeflow starts one process in each pod, however many GPUs the pod has.
Json ProcessesOfScript(Conversion& job, const std::string& asked, const std::string& path) {
  const auto count = IntegerFrom(asked);
  if (count && *count > 1) {
    job.notices.Fail(path,
                     "is " + asked +
                         ", but the command is not torchrun: Kubeflow starts it once in each pod with RANK "
                         "of the pod; here each of " +
                         asked + " processes is a rank. Let the script start no processes itself");
    return *count;
  }
  if (job.pods.gpus > 1) {
    job.Comment("spec.nprocPerNode",
                "As in Kubeflow, where this command is started once in each pod. Write auto for one process\n"
                "on each of its " +
                    std::to_string(job.pods.gpus) + " GPUs, if the script does not use them all by itself.");
  }
  return 1;
}

Json ProcessesOfTorchrun(Conversion& job, const std::string& asked, const std::string& path) {
  if (const auto count = IntegerFrom(asked)) return *count;
  const bool is_auto = asked.empty() || asked == "auto";
  if ((is_auto || asked == "gpu") && job.pods.gpus > 0) return "auto";
  if (is_auto || asked == "cpu") {
    job.notices.Warn(path,
                     std::string(is_auto ? "auto" : "cpu") +
                         " is one process for each processor of the node under torchrun; here it becomes "
                         "cpu, the CPU limit of the container, or 1");
    job.Comment("spec.nprocPerNode",
                "The CPU limit of the container, or 1; torchrun took all processors of the node.");
    return "cpu";
  }
  job.notices.Fail(path, asked == "gpu" ? "is gpu, but the container has no limit of GPUs; set one"
                                        : "must be auto, cpu, gpu or a number, not " + asked);
  return "auto";
}

void WarnOfPreparation(Conversion& job) {
  if (!job.pods.launch.is_torchrun || !job.pods.launch.prepares || job.Spec()["nprocPerNode"] == Json(1))
    return;
  const std::string what = "what the shell does in addition to torchrun now happens once in each rank";
  job.notices.Warn(job.template_path + "." + job.pods.trainer + ".command",
                   what + ", at each of its starts; move it into an init container or the image");
  job.Comment(
      "spec.worker.template." + job.pods.trainer + ".command",
      "Now once in each rank, at each of its starts: what should\nnot be repeated belongs into an init "
      "container or the image.");
}

std::map<std::string, std::string> TakeRendezvousConf(Conversion& job) {
  std::map<std::string, std::string> settings;
  const Json* list = job.reader.Take("spec.elasticPolicy.rdzvConf");
  if (list != nullptr && list->is_array()) {
    for (const Json& entry : *list) settings[StringAt(entry, {"key"})] = StringAt(entry, {"value"});
  }
  const std::string flag = job.Flag("--rdzv_conf");
  for (const std::string& entry : flag.empty() ? std::vector<std::string>{} : Split(flag, ',')) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    settings[entry.substr(0, equals)] = entry.substr(std::min(equals + 1, entry.size()));
  }
  return settings;
}

}  // namespace

void ConvertProcesses(Conversion& job) {
  std::string asked = TakeNproc(job, "spec.nprocPerNode");
  std::string path = "spec.nprocPerNode";
  const std::string deprecated = TakeNproc(job, "spec.elasticPolicy.nProcPerNode");
  if (asked.empty() && !deprecated.empty()) {
    asked = deprecated;
    path = "spec.elasticPolicy.nProcPerNode";
  }
  const std::string flag = job.Flag("--nproc_per_node");
  if (IsVariable(flag) && flag.find("PET_NPROC_PER_NODE") == std::string::npos) {
    job.notices.Fail(job.FlagPath("--nproc_per_node"),
                     flag + " is known only in the pod; write the number, or gpu, or cpu");
  } else if (!flag.empty() && !IsVariable(flag)) {
    asked = flag;
    path = job.FlagPath("--nproc_per_node");
  }
  job.Spec()["nprocPerNode"] = job.pods.launch.is_torchrun ? ProcessesOfTorchrun(job, asked, path)
                                                           : ProcessesOfScript(job, asked, path);
  WarnOfPreparation(job);
}

void ConvertRendezvous(Conversion& job) {
  std::map<std::string, int64_t> numbers;
  for (const auto& [key, value] : TakeRendezvousConf(job)) {
    const std::string path = "spec.elasticPolicy.rdzvConf[" + key + "]";
    const Field* field = FindField(RendezvousKeys(), key);
    const auto number = IntegerFrom(value);
    if (field == nullptr) {
      job.notices.Warn(path, "is not a setting of a rendezvous that convert supports; see spec.rendezvous");
    } else if (field->fate != Fate::kBecomes) {
      job.notices.Say(*field, path);
    } else if (!number) {
      job.notices.Fail(path, "must be a whole number of seconds, not " + value);
    } else {
      numbers[key] = *number;
    }
  }
  const auto copy = [&](const char* theirs, const char* ours) {
    if (numbers.contains(theirs)) job.Spec()["rendezvous"][ours] = numbers[theirs];
  };
  copy("join_timeout", "joinTimeoutSeconds");
  copy("last_call_timeout", "lastCallSeconds");
  copy("keep_alive_interval", "heartbeatIntervalSeconds");
  if (!numbers.contains("keep_alive_interval") && !numbers.contains("keep_alive_max_attempt")) return;
  const int64_t interval = numbers.emplace("keep_alive_interval", kDefaultKeepAlive).first->second;
  const int64_t attempts = numbers.emplace("keep_alive_max_attempt", kDefaultAttempts).first->second;
  job.Spec()["rendezvous"]["heartbeatTimeoutSeconds"] = std::max(interval * attempts, interval + 1);
}

}  // namespace lockstep::convert
