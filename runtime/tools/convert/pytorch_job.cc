#include "runtime/tools/convert/pytorch_job.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/strings.h"
#include "runtime/tools/convert/conversion.h"
#include "runtime/tools/convert/policies.h"
#include "runtime/tools/convert/torchrun_settings.h"

namespace lockstep::convert {
namespace {

constexpr const char* kReplicaSpecs = "pytorchReplicaSpecs";
constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
constexpr const char* kAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";
constexpr std::string_view kTheirLabels = "training.kubeflow.org/";

// Kubeflow's controller accepts replica types in any case.
Json WithProperTypes(Json object) {
  const Json* specs = FindJson(object, {"spec", kReplicaSpecs});
  if (specs == nullptr || !specs->is_object()) return object;
  Json proper = Json::object();
  for (const auto& [type, spec] : specs->items()) {
    std::string name = type;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == "master" || name == "worker") name[0] = static_cast<char>(std::toupper(name[0]));
    proper[name == "Master" || name == "Worker" ? name : type] = spec;
  }
  object["spec"][kReplicaSpecs] = std::move(proper);
  return object;
}

// Appends the paths below `path` at which the two differ, with both values.
void Differences(const Json& ours, const Json& other, const std::string& path,
                 std::vector<std::string>& found) {
  if (ours.is_object() && other.is_object()) {
    Json keys = ours;
    keys.update(other);
    for (const auto& [key, value] : keys.items()) {
      Differences(ours.value(key, Json()), other.value(key, Json()), path + "." + key, found);
    }
  } else if (ours.is_array() && other.is_array() && ours.size() == other.size()) {
    for (std::size_t index = 0; index < ours.size(); ++index)
      Differences(ours[index], other[index], path + "[" + std::to_string(index) + "]", found);
  } else if (ours != other) {
    const auto text = [](const Json& value) {
      return value.is_null() ? std::string("absent") : Truncate(DumpJson(value), 60);
    };
    found.push_back(path + " is " + text(other) + ", but of the Worker " + text(ours));
  }
}

struct Replicas {
  bool is_there = false;
  int64_t count = 0;
  const Json* pod_template = nullptr;
  std::string restart_policy;
  std::string path;
};

void TakeQueue(Conversion& job, Json& texts) {
  LOCKSTEP_CHECK(FindField(JobFields(), "metadata.labels[kueue.x-k8s.io/queue-name]") != nullptr);
  const std::string queue = StringAt(texts, {kQueueLabel});
  if (!queue.empty()) job.Spec()["schedulingPolicy"]["queueName"] = queue;
  texts.erase(kQueueLabel);
}

void ConvertMetadata(Conversion& job) {
  Json& metadata = job.result["metadata"];
  for (const char* field : {"name", "namespace"}) {
    const std::string text = job.reader.TakeText(std::string("metadata.") + field);
    if (!text.empty()) metadata[field] = text;
  }
  for (const char* field : {"labels", "annotations"}) {
    const Json* texts = job.reader.Take(std::string("metadata.") + field);
    if (texts == nullptr || !texts->is_object()) continue;
    Json kept = *texts;
    kept.erase(kAppliedAnnotation);
    TakeQueue(job, kept);
    if (!kept.empty()) metadata[field] = std::move(kept);
  }
}

Replicas TakeReplicas(Conversion& job, const std::string& type) {
  Replicas replicas{.path = std::string("spec.") + kReplicaSpecs + "." + type};
  replicas.is_there = FindJson(job.source, {"spec", kReplicaSpecs, type}) != nullptr;
  const auto count = job.reader.TakeInteger(replicas.path + ".replicas");
  replicas.pod_template = job.reader.Take(replicas.path + ".template");
  replicas.restart_policy = job.reader.TakeText(replicas.path + ".restartPolicy");
  if (replicas.is_there) replicas.count = count.value_or(1);
  if (replicas.restart_policy.empty()) replicas.restart_policy = "OnFailure";
  return replicas;
}

// Lockstep has one role, so differences between the two cannot be kept.
void Compare(Conversion& job, const Replicas& master) {
  std::vector<std::string> found;
  if (master.restart_policy != job.restart_policy)
    found.push_back(".restartPolicy is " + master.restart_policy + ", but of the Worker " +
                    job.restart_policy);
  const Json none;
  const PodTemplate theirs = ConvertTemplate(master.pod_template == nullptr ? none : *master.pod_template,
                                             master.path + ".template", job.pods.container_name);
  Differences(job.pods.value, theirs.value, ".template", found);
  for (const std::string& difference : found) {
    job.notices.Fail(
        master.path,
        difference.substr(1) +
            "; Lockstep has one role, so give both the same (with --force the Worker's is used)");
  }
  if (!found.empty()) job.Comment("spec.worker.template", "The Worker's; the Master's was another.");
}

void ConvertPods(Conversion& job) {
  const Replicas master = TakeReplicas(job, "Master");
  const Replicas worker = TakeReplicas(job, "Worker");
  job.has_master = master.is_there;
  job.replicas = master.count + worker.count;
  const Replicas& main = worker.is_there ? worker : master;
  job.restart_policy = main.restart_policy;
  job.restart_path = main.path + ".restartPolicy";
  job.template_path = main.path + ".template";
  const Json none;
  const Json& theirs = main.pod_template == nullptr ? none : *main.pod_template;
  const std::string name = MustKeepName(job.source) ? "pytorch" : "trainer";
  job.pods = ConvertTemplate(theirs, job.template_path, name);
  job.notices.Add(job.pods.notices.list());
  if (master.is_there && worker.is_there) Compare(job, master);

  Json& ours = job.Spec()["worker"];
  ours["replicas"] = job.replicas;
  if (name != "trainer") ours["containerName"] = name;
  ours["template"] = job.pods.value;
  if (job.pods.host_network) job.Spec()["network"] = {{"hostNetwork", true}, {"networkPolicy", "None"}};
}

void TakeNnodes(Conversion& job, std::optional<int64_t>& least, std::optional<int64_t>& most) {
  const std::string nnodes = job.Flag("--nnodes");
  if (nnodes.empty() || IsVariable(nnodes)) return;
  const std::vector<std::string> bounds = Split(nnodes, ':');
  const auto from = IntegerFrom(bounds.front());
  const auto to = IntegerFrom(bounds.back());
  const bool is_range = bounds.size() == 2;
  if (!from || !to || bounds.size() > 2) {
    job.notices.Fail(job.FlagPath("--nnodes"), "must be a number or MIN:MAX, not " + nnodes);
  } else if (is_range && !job.is_elastic) {
    job.is_elastic = true;
    least = from;
    most = to;
  } else if (is_range ? from != least || to != most : !job.is_elastic && *from != job.replicas) {
    job.notices.Fail(job.FlagPath("--nnodes"),
                     "is " + nnodes + ", but the replicas are " + std::to_string(job.replicas) +
                         (job.is_elastic ? " with other bounds in spec.elasticPolicy" : "") +
                         "; make them agree (with --force the flag is left out)");
  }
}

void ConvertElasticity(Conversion& job) {
  auto least = job.reader.TakeInteger("spec.elasticPolicy.minReplicas");
  auto most = job.reader.TakeInteger("spec.elasticPolicy.maxReplicas");
  const Json* metrics = job.reader.Take("spec.elasticPolicy.metrics");
  job.is_elastic = FindJson(job.source, {"spec", "elasticPolicy"}) != nullptr;
  TakeNnodes(job, least, most);
  if (!job.is_elastic) return;
  if (!least) least = most;
  if (!most) most = least;
  const std::string which = "spec.elasticPolicy";
  int64_t from = least.value_or(job.replicas);
  int64_t to = most.value_or(job.replicas);
  if (job.replicas < from || job.replicas > to) {
    job.notices.Fail(which,
                     "is " + std::to_string(from) + " to " + std::to_string(to) + ", but there are " +
                         std::to_string(job.replicas) +
                         " replicas; Lockstep requires them within (with --force the bounds are widened)");
    from = std::min(from, job.replicas);
    to = std::max(to, job.replicas);
  }
  Json& ours = job.Spec()["elasticPolicy"];
  ours["minReplicas"] = from;
  ours["maxReplicas"] = to;
  if (metrics != nullptr) ours["metrics"] = *metrics;
}

void FailFor(Conversion& job, const std::string& path) {
  job.notices.Fail(path,
                   "names a label of Kubeflow's pods; those of Lockstep have lockstep.dev/job and "
                   "lockstep.dev/slot");
}

// Pods of Lockstep do not have these labels, so a selector for them would match nothing.
void LookForTheirLabels(Conversion& job, const Json& value, const std::string& path) {
  if (!value.is_structured()) {
    if (value.is_string() && value.get_ref<const std::string&>().starts_with(kTheirLabels))
      FailFor(job, path);
    return;
  }
  for (const auto& [key, entry] : value.items()) {
    const std::string place = value.is_array() ? path + "[" + key + "]"
                              : path.empty()   ? key
                                               : path + "." + key;
    if (value.is_object() && key.starts_with(kTheirLabels)) FailFor(job, place);
    LookForTheirLabels(job, entry, place);
  }
}

}  // namespace

bool IsPyTorchJob(const Json& object) {
  return StringAt(object, {"kind"}) == "PyTorchJob" &&
         StringAt(object, {"apiVersion"}).starts_with("kubeflow.org/");
}

ConvertedJob ConvertPyTorchJob(const Json& object) {
  Conversion job(WithProperTypes(object));
  job.result = {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"spec", Json::object()}};
  ConvertMetadata(job);
  ConvertPods(job);
  ConvertElasticity(job);
  ConvertProcesses(job);
  ConvertRendezvous(job);
  ConvertFailures(job);
  ConvertRunPolicy(job);
  ConvertScheduling(job);
  ConvertSuccess(job);
  LookForTheirLabels(job, job.result, "");
  job.reader.Finish();
  return {std::move(job.result), std::move(job.comments), job.notices.list()};
}

}  // namespace lockstep::convert
