#include "runtime/tools/convert/pytorch_job.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/strings.h"
#include "runtime/tools/convert/pod_template.h"
#include "runtime/tools/convert/pytorch_job_reader.h"

namespace lockstep::convert {
namespace {

constexpr const char* kReplicaSpecs = "pytorchReplicaSpecs";
constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
constexpr const char* kAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";
constexpr std::string_view kTheirLabels = "training.kubeflow.org/";
constexpr int64_t kNoLimit = 1'000'000;   // the maximum of failurePolicy.maxRestarts
constexpr int64_t kMostInPlace = 1000;    // the maximum of inPlaceLimit
constexpr int64_t kDefaultKeepAlive = 5;  // the default of torchrun
constexpr int64_t kDefaultAttempts = 3;

std::optional<int64_t> IntegerFrom(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 10 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return is_number ? std::optional<int64_t>(std::stoll(text)) : std::nullopt;
}

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

class Converter {
 public:
  explicit Converter(const Json& object) : source_(WithProperTypes(object)), reader_(source_, notices_) {}

  ConvertedJob Convert() && {
    job_ = {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"spec", Json::object()}};
    ConvertMetadata();
    ConvertPods();
    ConvertElasticity();
    ConvertProcesses();
    ConvertRendezvous();
    ConvertFailures();
    ConvertRunPolicy();
    ConvertScheduling();
    ConvertSuccess();
    LookForTheirLabels(job_, "");
    reader_.Finish();
    return {std::move(job_), std::move(comments_), notices_.list()};
  }

 private:
  Json& Spec() { return job_["spec"]; }

  void Comment(const std::string& path, const std::string& text) {
    std::string& comment = comments_[path];
    comment += (comment.empty() ? "" : "\n") + text;
  }

  std::string Flag(const std::string& name) const {
    const auto found = pods_.launch.flags.find(name);
    return found == pods_.launch.flags.end() ? "" : found->second;
  }
  std::string FlagPath(const std::string& name) const {
    return template_path_ + "." + pods_.trainer + ".command " + name;
  }
  // Values that torchrun takes from Kubeflow's variables are also in the fields.
  static bool IsVariable(const std::string& value) { return value.find('$') != std::string::npos; }

  // ---- metadata, and the queue that Kueue reads there ----

  void ConvertMetadata() {
    Json& metadata = job_["metadata"];
    for (const char* field : {"name", "namespace"}) {
      const std::string text = reader_.TakeText(std::string("metadata.") + field);
      if (!text.empty()) metadata[field] = text;
    }
    for (const char* field : {"labels", "annotations"}) {
      const Json* texts = reader_.Take(std::string("metadata.") + field);
      if (texts == nullptr || !texts->is_object()) continue;
      Json kept = *texts;
      kept.erase(kAppliedAnnotation);
      TakeQueue(kept);
      if (!kept.empty()) metadata[field] = std::move(kept);
    }
  }

  void TakeQueue(Json& texts) {
    LOCKSTEP_CHECK(FindField(JobFields(), "metadata.labels[kueue.x-k8s.io/queue-name]") != nullptr);
    const std::string queue = StringAt(texts, {kQueueLabel});
    if (!queue.empty()) Spec()["schedulingPolicy"]["queueName"] = queue;
    texts.erase(kQueueLabel);
  }

  // ---- spec.pytorchReplicaSpecs ----

  struct Replicas {
    bool is_there = false;
    int64_t count = 0;
    const Json* pod_template = nullptr;
    std::string restart_policy;
    std::string path;
  };

  Replicas TakeReplicas(const std::string& type) {
    Replicas replicas{.path = std::string("spec.") + kReplicaSpecs + "." + type};
    replicas.is_there = FindJson(source_, {"spec", kReplicaSpecs, type}) != nullptr;
    const auto count = reader_.TakeInteger(replicas.path + ".replicas");
    replicas.pod_template = reader_.Take(replicas.path + ".template");
    replicas.restart_policy = reader_.TakeText(replicas.path + ".restartPolicy");
    if (replicas.is_there) replicas.count = count.value_or(1);
    if (replicas.restart_policy.empty()) replicas.restart_policy = "OnFailure";
    return replicas;
  }

  void ConvertPods() {
    const Replicas master = TakeReplicas("Master");
    const Replicas worker = TakeReplicas("Worker");
    has_master_ = master.is_there;
    replicas_ = master.count + worker.count;
    const Replicas& main = worker.is_there ? worker : master;
    restart_policy_ = main.restart_policy;
    restart_path_ = main.path + ".restartPolicy";
    template_path_ = main.path + ".template";
    const Json none;
    const Json& theirs = main.pod_template == nullptr ? none : *main.pod_template;
    const std::string name = MustKeepName(source_) ? "pytorch" : "trainer";
    pods_ = ConvertTemplate(theirs, template_path_, name);
    notices_.Add(pods_.notices.list());
    if (master.is_there && worker.is_there) Compare(master);

    Json& ours = Spec()["worker"];
    ours["replicas"] = replicas_;
    if (name != "trainer") ours["containerName"] = name;
    ours["template"] = pods_.value;
    if (pods_.host_network) Spec()["network"] = {{"hostNetwork", true}, {"networkPolicy", "None"}};
  }

  // Lockstep has one role, so differences between the two cannot be kept.
  void Compare(const Replicas& master) {
    std::vector<std::string> found;
    if (master.restart_policy != restart_policy_)
      found.push_back(".restartPolicy is " + master.restart_policy + ", but of the Worker " +
                      restart_policy_);
    const Json none;
    const PodTemplate theirs = ConvertTemplate(master.pod_template == nullptr ? none : *master.pod_template,
                                               master.path + ".template", pods_.container_name);
    Differences(pods_.value, theirs.value, ".template", found);
    for (const std::string& difference : found) {
      notices_.Fail(master.path,
                    difference.substr(1) +
                        "; Lockstep has one role, so give both the same (with --force the Worker's is used)");
    }
    if (!found.empty()) Comment("spec.worker.template", "The Worker's; the Master's was another.");
  }

  // ---- spec.elasticPolicy: how many pods ----

  void ConvertElasticity() {
    auto least = reader_.TakeInteger("spec.elasticPolicy.minReplicas");
    auto most = reader_.TakeInteger("spec.elasticPolicy.maxReplicas");
    const Json* metrics = reader_.Take("spec.elasticPolicy.metrics");
    is_elastic_ = FindJson(source_, {"spec", "elasticPolicy"}) != nullptr;
    TakeNnodes(least, most);
    if (!is_elastic_) return;
    if (!least) least = most;
    if (!most) most = least;
    const std::string which = "spec.elasticPolicy";
    int64_t from = least.value_or(replicas_);
    int64_t to = most.value_or(replicas_);
    if (replicas_ < from || replicas_ > to) {
      notices_.Fail(which,
                    "is " + std::to_string(from) + " to " + std::to_string(to) + ", but there are " +
                        std::to_string(replicas_) +
                        " replicas; Lockstep requires them within (with --force the bounds are widened)");
      from = std::min(from, replicas_);
      to = std::max(to, replicas_);
    }
    Json& ours = Spec()["elasticPolicy"];
    ours["minReplicas"] = from;
    ours["maxReplicas"] = to;
    if (metrics != nullptr) ours["metrics"] = *metrics;
  }

  void TakeNnodes(std::optional<int64_t>& least, std::optional<int64_t>& most) {
    const std::string nnodes = Flag("--nnodes");
    if (nnodes.empty() || IsVariable(nnodes)) return;
    const std::vector<std::string> bounds = Split(nnodes, ':');
    const auto from = IntegerFrom(bounds.front());
    const auto to = IntegerFrom(bounds.back());
    const bool is_range = bounds.size() == 2;
    if (!from || !to || bounds.size() > 2) {
      notices_.Fail(FlagPath("--nnodes"), "must be a number or MIN:MAX, not " + nnodes);
    } else if (is_range && !is_elastic_) {
      is_elastic_ = true;
      least = from;
      most = to;
    } else if (is_range ? from != least || to != most : !is_elastic_ && *from != replicas_) {
      notices_.Fail(FlagPath("--nnodes"),
                    "is " + nnodes + ", but the replicas are " + std::to_string(replicas_) +
                        (is_elastic_ ? " with other bounds in spec.elasticPolicy" : "") +
                        "; make them agree (with --force the flag is left out)");
    }
  }

  // ---- spec.nprocPerNode ----

  void ConvertProcesses() {
    std::string asked = TakeNproc("spec.nprocPerNode");
    std::string path = "spec.nprocPerNode";
    const std::string deprecated = TakeNproc("spec.elasticPolicy.nProcPerNode");
    if (asked.empty() && !deprecated.empty()) {
      asked = deprecated;
      path = "spec.elasticPolicy.nProcPerNode";
    }
    const std::string flag = Flag("--nproc_per_node");
    if (IsVariable(flag) && flag.find("PET_NPROC_PER_NODE") == std::string::npos) {
      notices_.Fail(FlagPath("--nproc_per_node"),
                    flag + " is known only in the pod; write the number, or gpu, or cpu");
    } else if (!flag.empty() && !IsVariable(flag)) {
      asked = flag;
      path = FlagPath("--nproc_per_node");
    }
    Spec()["nprocPerNode"] =
        pods_.launch.is_torchrun ? ProcessesOfTorchrun(asked, path) : ProcessesOfScript(asked, path);
    WarnOfPreparation();
  }

  // The definition requires a string; users also write numbers.
  std::string TakeNproc(std::string_view field) {
    const Json* value = reader_.Take(field);
    if (value == nullptr) return "";
    return value->is_string() ? value->get<std::string>() : DumpJson(*value);
  }

  // Kubeflow starts one process in each pod, however many GPUs the pod has.
  Json ProcessesOfScript(const std::string& asked, const std::string& path) {
    const auto count = IntegerFrom(asked);
    if (count && *count > 1) {
      notices_.Fail(path,
                    "is " + asked +
                        ", but the command is not torchrun: Kubeflow starts it once in each pod with RANK "
                        "of the pod; here each of " +
                        asked + " processes is a rank. Let the script start no processes itself");
      return *count;
    }
    if (pods_.gpus > 1) {
      Comment("spec.nprocPerNode",
              "As in Kubeflow, where this command is started once in each pod. Write auto for one process\n"
              "on each of its " +
                  std::to_string(pods_.gpus) + " GPUs, if the script does not use them all by itself.");
    }
    return 1;
  }

  Json ProcessesOfTorchrun(const std::string& asked, const std::string& path) {
    if (const auto count = IntegerFrom(asked)) return *count;
    const bool is_auto = asked.empty() || asked == "auto";
    if ((is_auto || asked == "gpu") && pods_.gpus > 0) return "auto";
    if (is_auto || asked == "cpu") {
      notices_.Warn(path,
                    std::string(is_auto ? "auto" : "cpu") +
                        " is one process for each processor of the node under torchrun; here it becomes "
                        "cpu, the CPU limit of the container, or 1");
      Comment("spec.nprocPerNode",
              "The CPU limit of the container, or 1; torchrun took all processors of the node.");
      return "cpu";
    }
    notices_.Fail(path, asked == "gpu" ? "is gpu, but the container has no limit of GPUs; set one"
                                       : "must be auto, cpu, gpu or a number, not " + asked);
    return "auto";
  }

  void WarnOfPreparation() {
    if (!pods_.launch.is_torchrun || !pods_.launch.prepares || Spec()["nprocPerNode"] == Json(1)) return;
    const std::string what = "what the shell does in addition to torchrun now happens once in each rank";
    notices_.Warn(template_path_ + "." + pods_.trainer + ".command",
                  what + ", at each of its starts; move it into an init container or the image");
    Comment("spec.worker.template." + pods_.trainer + ".command",
            "Now once in each rank, at each of its starts: what should\nnot be repeated belongs into an init "
            "container or the image.");
  }

  // ---- rdzvConf ----

  std::map<std::string, std::string> TakeRendezvousConf() {
    std::map<std::string, std::string> settings;
    const Json* list = reader_.Take("spec.elasticPolicy.rdzvConf");
    if (list != nullptr && list->is_array()) {
      for (const Json& entry : *list) settings[StringAt(entry, {"key"})] = StringAt(entry, {"value"});
    }
    const std::string flag = Flag("--rdzv_conf");
    for (const std::string& entry : flag.empty() ? std::vector<std::string>{} : Split(flag, ',')) {
      const std::size_t equals = std::min(entry.find('='), entry.size());
      settings[entry.substr(0, equals)] = entry.substr(std::min(equals + 1, entry.size()));
    }
    return settings;
  }

  void ConvertRendezvous() {
    std::map<std::string, int64_t> numbers;
    for (const auto& [key, value] : TakeRendezvousConf()) {
      const std::string path = "spec.elasticPolicy.rdzvConf[" + key + "]";
      const Field* field = FindField(RendezvousKeys(), key);
      const auto number = IntegerFrom(value);
      if (field == nullptr) {
        notices_.Warn(path, "is not a setting of a rendezvous that convert supports; see spec.rendezvous");
      } else if (field->fate != Fate::kBecomes) {
        notices_.Say(*field, path);
      } else if (!number) {
        notices_.Fail(path, "must be a whole number of seconds, not " + value);
      } else {
        numbers[key] = *number;
      }
    }
    const auto copy = [&](const char* theirs, const char* ours) {
      if (numbers.contains(theirs)) Spec()["rendezvous"][ours] = numbers[theirs];
    };
    copy("join_timeout", "joinTimeoutSeconds");
    copy("last_call_timeout", "lastCallSeconds");
    copy("keep_alive_interval", "heartbeatIntervalSeconds");
    if (!numbers.contains("keep_alive_interval") && !numbers.contains("keep_alive_max_attempt")) return;
    const int64_t interval = numbers.emplace("keep_alive_interval", kDefaultKeepAlive).first->second;
    const int64_t attempts = numbers.emplace("keep_alive_max_attempt", kDefaultAttempts).first->second;
    Spec()["rendezvous"]["heartbeatTimeoutSeconds"] = std::max(interval * attempts, interval + 1);
  }

  // ---- restartPolicy, backoffLimit, maxRestarts ----

  void ConvertFailures() {
    const auto backoff = reader_.TakeInteger("spec.runPolicy.backoffLimit");
    auto in_place = reader_.TakeInteger("spec.elasticPolicy.maxRestarts");
    if (const std::string flag = Flag("--max_restarts"); !flag.empty()) {
      in_place = IntegerFrom(flag);
      if (!in_place) notices_.Fail(FlagPath("--max_restarts"), "must be a number, not " + flag);
    }
    Json& ours = Spec()["failurePolicy"];
    if (restart_policy_ == "Never") {
      ours["maxRestarts"] = 0;
      if (!in_place) in_place = 0;
      if (backoff)
        notices_.Warn("spec.runPolicy.backoffLimit",
                      "is not needed: with restartPolicy Never nothing is restarted");
    } else if (backoff) {
      ours["maxRestarts"] = *backoff;
    } else {
      ours["maxRestarts"] = kNoLimit;
      Comment("spec.failurePolicy.maxRestarts",
              "As in Kubeflow, which has no limit without backoffLimit. Lockstep's default is 3.");
    }
    if (in_place) ours["inPlaceLimit"] = std::min(*in_place, kMostInPlace);
    ConvertRestartPolicy(ours);
  }

  void ConvertRestartPolicy(Json& ours) {
    if (restart_policy_ == "ExitCode") {
      ours["rules"] = {PermanentCodes("permanent-exit-code", 1, 64),
                       PermanentCodes("permanent-exit-code-from-65", 65, 127)};
      Comment("spec.failurePolicy.rules",
              "As in Kubeflow, 1 to 127 fail the job: also 1 of a script that ends because a peer is gone.");
      if (pods_.launch.is_torchrun) {
        notices_.Warn(
            restart_path_,
            "is ExitCode: torchrun ended with 1 whatever the script's code was; here the rules see the "
            "script's own");
      }
    } else if (restart_policy_ == "Always") {
      notices_.Warn(restart_path_, "is Always: what ended with 0 is not started again here");
    } else if (restart_policy_ != "OnFailure" && restart_policy_ != "Never") {
      notices_.Fail(restart_path_, "must be Always, OnFailure, Never or ExitCode, not " + restart_policy_);
    }
  }

  static Json PermanentCodes(const char* name, int first, int last) {
    Json values = Json::array();
    for (int code = first; code <= last; ++code) values.push_back(code);
    return {{"name", name},
            {"action", "FailJob"},
            {"onExitCodes", {{"operator", "In"}, {"values", std::move(values)}}}};
  }

  // ---- the rest of spec.runPolicy ----

  void ConvertRunPolicy() {
    Json& ours = Spec()["runPolicy"];
    const std::string clean = reader_.TakeText("spec.runPolicy.cleanPodPolicy");
    ours["cleanPodPolicy"] = clean.empty() ? "None" : clean;
    for (const char* field : {"ttlSecondsAfterFinished", "activeDeadlineSeconds"}) {
      if (const auto seconds = reader_.TakeInteger(std::string("spec.runPolicy.") + field))
        ours[field] = *seconds;
    }
    if (StringAt(source_, {"spec", "runPolicy", "managedBy"}) == "kubeflow.org/training-operator")
      static_cast<void>(reader_.Take("spec.runPolicy.managedBy"));
    const Json* suspend = reader_.Take("spec.runPolicy.suspend");
    if (suspend == nullptr || *suspend != Json(true)) return;
    if (Spec().contains("schedulingPolicy")) {
      notices_.Warn(
          "spec.runPolicy.suspend",
          "is left out: Kueue sets it where a PyTorchJob queues; here queueName alone holds the job");
    } else {
      Spec()["suspend"] = true;
    }
  }

  void ConvertScheduling() {
    const std::string path = "spec.runPolicy.schedulingPolicy.";
    const auto least = reader_.TakeInteger(path + "minAvailable");
    const auto timeout = reader_.TakeInteger(path + "scheduleTimeoutSeconds");
    const std::string priority = reader_.TakeText(path + "priorityClass");
    if (StringAt(source_, {"spec", "runPolicy", "schedulingPolicy", "queue"}) == "default")
      static_cast<void>(reader_.Take(path + "queue"));
    if (FindJson(source_, {"spec", "runPolicy", "schedulingPolicy"}) == nullptr) return;
    Json& ours = Spec()["schedulingPolicy"];
    ours["gang"]["provider"] = "Auto";
    if (least) ours["gang"]["minCount"] = *least;
    if (timeout) ours["gang"]["scheduleTimeoutSeconds"] = *timeout;
    if (priority.empty()) return;
    const std::string of_pods = StringAt(pods_.value, {"spec", "priorityClassName"});
    if (of_pods.empty() || of_pods == priority) {
      ours["priorityClassName"] = priority;
    } else {
      notices_.Warn(path + "priorityClass", "is left out: the pods of the template have " + of_pods);
    }
  }

  // Kubeflow's controller considers the pod of the master, or any pod of an elastic job without one.
  void ConvertSuccess() {
    if (replicas_ < 2 || (!has_master_ && !is_elastic_)) return;
    Spec()["successPolicy"]["type"] = has_master_ ? "Rank0" : "Any";
    Comment("spec.successPolicy", std::string("As in Kubeflow: the end of ") +
                                      (has_master_ ? "the master" : "any pod") +
                                      " completes the job. All waits for all pods.");
  }

  // Pods of Lockstep do not have these labels, so a selector for them would match nothing.
  void LookForTheirLabels(const Json& value, const std::string& path) {
    if (!value.is_structured()) {
      if (value.is_string() && value.get_ref<const std::string&>().starts_with(kTheirLabels)) FailFor(path);
      return;
    }
    for (const auto& [key, entry] : value.items()) {
      const std::string place = value.is_array() ? path + "[" + key + "]"
                                : path.empty()   ? key
                                                 : path + "." + key;
      if (value.is_object() && key.starts_with(kTheirLabels)) FailFor(place);
      LookForTheirLabels(entry, place);
    }
  }

  void FailFor(const std::string& path) {
    notices_.Fail(path,
                  "names a label of Kubeflow's pods; those of Lockstep have lockstep.dev/job and "
                  "lockstep.dev/slot");
  }

  const Json source_;
  Notices notices_;
  PyTorchJobReader reader_;
  Json job_;
  Comments comments_;
  PodTemplate pods_;
  std::string template_path_;
  std::string restart_policy_;
  std::string restart_path_;
  int64_t replicas_ = 0;
  bool has_master_ = false;
  bool is_elastic_ = false;
};

}  // namespace

bool IsPyTorchJob(const Json& object) {
  return StringAt(object, {"kind"}) == "PyTorchJob" &&
         StringAt(object, {"apiVersion"}).starts_with("kubeflow.org/");
}

ConvertedJob ConvertPyTorchJob(const Json& object) { return Converter(object).Convert(); }

}  // namespace lockstep::convert
