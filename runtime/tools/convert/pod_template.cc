#include "runtime/tools/convert/pod_template.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/common/api/container_resources.h"

namespace lockstep::convert {
namespace {

constexpr std::string_view kTheirName = "pytorch";
constexpr std::string_view kOurName = "trainer";
constexpr std::string_view kPortName = "pytorchjob-port";
// Variables that Lockstep sets in a rank, as Kubeflow's operator did.
constexpr std::array<std::string_view, 9> kRankVariables = {"MASTER_ADDR",      "MASTER_PORT", "RANK",
                                                            "WORLD_SIZE",       "LOCAL_RANK",  "NODE_RANK",
                                                            "LOCAL_WORLD_SIZE", "GROUP_RANK",  "ROLE_RANK"};

const Field& Known(std::string_view field) {
  const Field* found = FindField(TemplateFields(), field);
  LOCKSTEP_CHECK(found != nullptr, std::string(field));
  return *found;
}

// A field that is kept must be listed in docs/how-to/migration.md.
void CheckInTable(std::string_view field) { static_cast<void>(Known(field)); }

bool IsRankVariable(std::string_view name) {
  return name.starts_with("PET_") ||
         std::find(kRankVariables.begin(), kRankVariables.end(), name) != kRankVariables.end();
}

std::vector<std::string> StringsIn(const Json& container, std::string_view key) {
  std::vector<std::string> words;
  const Json* list = FindJson(container, {key});
  if (list == nullptr || !list->is_array()) return words;
  for (const Json& word : *list) words.push_back(word.is_string() ? word.get<std::string>() : DumpJson(word));
  return words;
}

class Template {
 public:
  Template(const Json& theirs, std::string path, const std::string& container_name)
      : path_(std::move(path)), result_{.value = theirs, .container_name = container_name} {}

  PodTemplate Convert() && {
    if (result_.value.is_object() && result_.value["spec"].is_object()) {
      ConvertPod(result_.value["spec"]);
      ConvertContainers(result_.value["spec"]);
    } else {
      result_.value = {{"spec", {{"containers", Json::array()}}}};
      result_.notices.Fail(path_ + ".spec", "is required");
    }
    return std::move(result_);
  }

 private:
  void Drop(Json& object, const std::string& key, std::string_view field) {
    if (!object.contains(key)) return;
    result_.notices.Say(Known(field), path_ + "." + std::string(field));
    object.erase(key);
  }

  void ConvertPod(Json& spec) {
    if (StringAt(spec, {"restartPolicy"}) == "Never") spec.erase("restartPolicy");
    Drop(spec, "restartPolicy", "spec.restartPolicy");
    Drop(spec, "hostname", "spec.hostname");
    Drop(spec, "subdomain", "spec.subdomain");
    Drop(spec, "nodeName", "spec.nodeName");
    CheckInTable("spec.hostNetwork");
    result_.host_network = BoolAt(spec, {"hostNetwork"});
    spec.erase("hostNetwork");
    CheckInTable("spec.serviceAccountName");
    const bool has_account = !StringAt(spec, {"serviceAccountName"}).empty();
    if (has_account && !spec.contains("automountServiceAccountToken"))
      spec["automountServiceAccountToken"] = true;
  }

  void ConvertContainers(Json& spec) {
    Json& containers = spec["containers"];
    if (containers.is_array()) {
      for (std::size_t index = 0; index < containers.size(); ++index) {
        if (StringAt(containers[index], {"name"}) != kTheirName) continue;
        result_.trainer = "spec.containers[" + std::to_string(index) + "]";
        return ConvertTrainer(containers[index]);
      }
    }
    result_.notices.Fail(path_ + ".spec.containers", "must hold a container named pytorch");
  }

  void ConvertTrainer(Json& trainer) {
    CheckInTable("spec.containers[pytorch].name");
    trainer["name"] = result_.container_name;
    result_.gpus = api::GpusOf(trainer).value_or(0);
    ConvertCommand(trainer);
    ConvertPorts(trainer);
    CheckEnvironment(trainer);
  }

  void ConvertCommand(Json& trainer) {
    CheckInTable("spec.containers[pytorch].command");
    CheckInTable("spec.containers[pytorch].args");
    const std::string place = path_ + "." + result_.trainer + ".command";
    const std::vector<std::string> command = StringsIn(trainer, "command");
    const std::vector<std::string> args = StringsIn(trainer, "args");
    if (command.empty()) {
      result_.notices.Fail(
          place,
          "is required, as Lockstep cannot know the entry point of an image; write that of the "
          "image here (docker inspect shows it)");
      return;
    }
    result_.launch = UnwrapLauncher(command, args);
    const Launch& launch = result_.launch;
    for (const std::string& problem : launch.problems) result_.notices.Fail(place, problem);
    for (const auto& [flag, value] : launch.flags) {
      const Field* field = FindField(LaunchFlags(), flag);
      if (field != nullptr && field->fate != Fate::kBecomes) result_.notices.Say(*field, place + " " + flag);
    }
    trainer["command"] = launch.command;
    trainer.erase("args");
    if (!launch.args.empty()) trainer["args"] = launch.args;
    LookForReferences(launch.command, place);
    LookForReferences(launch.args, path_ + "." + result_.trainer + ".args");
  }

  // The kubelet expands variables of the pod, but these are known only once a rank has its number.
  void LookForReferences(const std::vector<std::string>& words, const std::string& place) {
    for (const std::string& word : words) {
      for (std::size_t at = word.find("$("); at != std::string::npos; at = word.find("$(", at + 2)) {
        const std::string name = word.substr(at + 2, word.find(')', at) - at - 2);
        if (!IsRankVariable(name)) continue;
        result_.notices.Fail(place, "$(" + name +
                                        ") is not known when the pod starts, but in the environment " +
                                        "of each rank; read it there, or write $" + name + " in a shell");
      }
    }
  }

  void ConvertPorts(Json& trainer) {
    if (!trainer.contains("ports") || !trainer["ports"].is_array()) return;
    Json others = Json::array();
    for (const Json& port : trainer["ports"]) {
      if (StringAt(port, {"name"}) == kPortName) {
        result_.notices.Say(Known("spec.containers[pytorch].ports[pytorchjob-port]"),
                            path_ + "." + result_.trainer + ".ports[" + std::string(kPortName) + "]");
      } else {
        others.push_back(port);
      }
    }
    trainer["ports"] = others;
    if (others.empty()) trainer.erase("ports");
  }

  void CheckEnvironment(const Json& trainer) {
    CheckInTable("spec.containers[pytorch].env");
    const Json* variables = FindJson(trainer, {"env"});
    if (variables == nullptr || !variables->is_array()) return;
    for (const Json& variable : *variables) {
      const std::string name = StringAt(variable, {"name"});
      if (IsRankVariable(name)) {
        result_.notices.Warn(path_ + "." + result_.trainer + ".env[" + name + "]",
                             "has no effect: Lockstep starts each rank with variables of its own; remove it");
      }
    }
  }

  const std::string path_;
  PodTemplate result_;
};

// Whether any field of this name has this value.
bool HasField(const Json& value, std::string_view key, std::string_view text) {
  if (value.is_object() && StringAt(value, {key}) == text) return true;
  if (!value.is_structured()) return false;
  return std::any_of(value.begin(), value.end(),
                     [&](const Json& entry) { return HasField(entry, key, text); });
}

}  // namespace

PodTemplate ConvertTemplate(const Json& theirs, const std::string& path, const std::string& container_name) {
  return Template(theirs, path, container_name).Convert();
}

bool MustKeepName(const Json& spec) {
  // another container or a volume has the name: assume a reference
  return HasField(spec, "name", kOurName) ||
         HasField(spec, "containerName", kTheirName) ||  // resourceFieldRef
         HasField(spec, "container", kTheirName);        // a metric of the autoscaler
}

}  // namespace lockstep::convert
