#include "runtime/tools/convert/pytorch_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "runtime/tools/cli/manifest_file.h"
#include "runtime/tools/convert/field_table.h"

namespace lockstep::convert {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Pointer = Json::json_pointer;

const std::string kPods = "/spec/pytorchReplicaSpecs/Worker";
const std::string kPod = kPods + "/template/spec";
const std::string kTrainer = kPod + "/containers/0";
const std::string kOurPod = "/spec/worker/template/spec";
const std::string kOurTrainer = kOurPod + "/containers/0";

// Two workers, each with one process.
Json Job() {
  return Json::parse(R"({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [
      {"name": "pytorch", "image": "i", "command": ["python3", "t.py"]}]}}}}}})");
}

Json With(const std::vector<std::pair<std::string, Json>>& settings) {
  Json job = Job();
  for (const auto& [place, value] : settings) job[Pointer(place)] = value;
  return job;
}

// A master like the workers.
Json WithMaster(const std::vector<std::pair<std::string, Json>>& settings = {}) {
  Json job = With(settings);
  Json& specs = job["spec"]["pytorchReplicaSpecs"];
  specs["Master"] = specs["Worker"];
  specs["Master"]["replicas"] = 1;
  return job;
}

Json Torchrun(const std::vector<std::string>& flags) {
  Json command = {"torchrun"};
  for (const std::string& flag : flags) command.push_back(flag);
  command.push_back("t.py");
  return command;
}

std::vector<std::string> Say(const ConvertedJob& converted, Severity severity) {
  std::vector<std::string> texts;
  for (const Notice& notice : converted.notices) {
    if (notice.severity == severity) texts.push_back(notice.path + ": " + notice.text);
  }
  return texts;
}
std::vector<std::string> Warnings(const Json& job) { return Say(ConvertPyTorchJob(job), Severity::kWarning); }
std::vector<std::string> Errors(const Json& job) { return Say(ConvertPyTorchJob(job), Severity::kError); }

// The value at a path of the converted job; null if there is none.
Json At(const Json& theirs, const std::string& place) {
  const Json ours = ConvertPyTorchJob(theirs).job;
  return ours.contains(Pointer(place)) ? ours[Pointer(place)] : Json();
}

struct FieldCase {
  std::string field;  // as in the table
  Json theirs;
  std::string place;  // path in the converted job …
  Json becomes;       // … and its value there
};

std::vector<FieldCase> FieldCases() {
  const std::string elastic = "/spec/elasticPolicy";
  const std::string run = "/spec/runPolicy";
  const std::string scheduling = run + "/schedulingPolicy";
  const Json bounds = {{"minReplicas", 1}, {"maxReplicas", 4}};
  const Json metrics = {{{"type", "Resource"}}};
  const Json labels = {{"kueue.x-k8s.io/queue-name", "q"}, {"team", "x"}};
  const std::string master = "spec.pytorchReplicaSpecs.Master.";
  const std::string worker = "spec.pytorchReplicaSpecs.Worker.";
  return {
      {"metadata.name", With({{"/metadata/name", "b"}}), "/metadata/name", "b"},
      {"metadata.namespace", With({{"/metadata/namespace", "n"}}), "/metadata/namespace", "n"},
      {"metadata.labels", With({{"/metadata/labels", labels}}), "/metadata/labels", {{"team", "x"}}},
      {"metadata.labels[kueue.x-k8s.io/queue-name]", With({{"/metadata/labels", labels}}),
       "/spec/schedulingPolicy/queueName", "q"},
      {"metadata.annotations",
       With({{"/metadata/annotations",
              {{"kubectl.kubernetes.io/last-applied-configuration", "x"}, {"o", "p"}}}}),
       "/metadata/annotations",
       {{"o", "p"}}},
      {"spec.nprocPerNode", With({{"/spec/nprocPerNode", "3"}, {kTrainer + "/command", Torchrun({})}}),
       "/spec/nprocPerNode", 3},
      {master + "replicas", WithMaster(), "/spec/worker/replicas", 3},
      {worker + "replicas", With({{kPods + "/replicas", 7}}), "/spec/worker/replicas", 7},
      {master + "template",
       Json::parse(R"({"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": {"template":
          {"spec": {"containers": [{"name": "pytorch", "image": "m", "command": ["c"]}]}}}}}})"),
       kOurTrainer + "/image", "m"},
      {worker + "template", With({{kTrainer + "/image", "j"}}), kOurTrainer + "/image", "j"},
      {master + "restartPolicy",
       Json::parse(
           R"({"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": {"restartPolicy": "Never"}}}})"),
       "/spec/failurePolicy/maxRestarts", 0},
      {worker + "restartPolicy", With({{kPods + "/restartPolicy", "Never"}}),
       "/spec/failurePolicy/maxRestarts", 0},
      {"spec.elasticPolicy.minReplicas", With({{elastic, bounds}}), "/spec/elasticPolicy/minReplicas", 1},
      {"spec.elasticPolicy.maxReplicas", With({{elastic, bounds}}), "/spec/elasticPolicy/maxReplicas", 4},
      {"spec.elasticPolicy.maxRestarts", With({{elastic + "/maxRestarts", 9}}),
       "/spec/failurePolicy/inPlaceLimit", 9},
      {"spec.elasticPolicy.metrics", With({{elastic + "/metrics", metrics}}), "/spec/elasticPolicy/metrics",
       metrics},
      {"spec.elasticPolicy.nProcPerNode",
       With({{elastic + "/nProcPerNode", 5}, {kTrainer + "/command", Torchrun({})}}), "/spec/nprocPerNode",
       5},
      {"spec.elasticPolicy.rdzvConf",
       With({{elastic + "/rdzvConf", {{{"key", "join_timeout"}, {"value", "77"}}}}}),
       "/spec/rendezvous/joinTimeoutSeconds", 77},
      {"spec.runPolicy.cleanPodPolicy", With({{run + "/cleanPodPolicy", "All"}}),
       "/spec/runPolicy/cleanPodPolicy", "All"},
      {"spec.runPolicy.ttlSecondsAfterFinished", With({{run + "/ttlSecondsAfterFinished", 60}}),
       "/spec/runPolicy/ttlSecondsAfterFinished", 60},
      {"spec.runPolicy.activeDeadlineSeconds", With({{run + "/activeDeadlineSeconds", 61}}),
       "/spec/runPolicy/activeDeadlineSeconds", 61},
      {"spec.runPolicy.backoffLimit", With({{run + "/backoffLimit", 6}}), "/spec/failurePolicy/maxRestarts",
       6},
      {"spec.runPolicy.suspend", With({{run + "/suspend", true}}), "/spec/suspend", true},
      {"spec.runPolicy.schedulingPolicy.minAvailable", With({{scheduling + "/minAvailable", 2}}),
       "/spec/schedulingPolicy/gang/minCount", 2},
      {"spec.runPolicy.schedulingPolicy.priorityClass", With({{scheduling + "/priorityClass", "p"}}),
       "/spec/schedulingPolicy/priorityClassName", "p"},
      {"spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds",
       With({{scheduling + "/scheduleTimeoutSeconds", 30}}),
       "/spec/schedulingPolicy/gang/scheduleTimeoutSeconds", 30},
      {"spec.containers[pytorch].name", Job(), kOurTrainer + "/name", "trainer"},
      {"spec.containers[pytorch].command",
       With({{kTrainer + "/command", {"torchrun", "--standalone", "t.py"}}}),
       kOurTrainer + "/command",
       {"python3", "t.py"}},
      {"spec.containers[pytorch].args",
       With({{kTrainer + "/command", {"torchrun"}}, {kTrainer + "/args", {"--standalone", "t.py", "-x"}}}),
       kOurTrainer + "/args", Json::array({"-x"})},
      {"spec.containers[pytorch].env",
       With({{kTrainer + "/env", Json::array({{{"name", "A"}, {"value", "1"}}})}}), kOurTrainer + "/env",
       Json::array({{{"name", "A"}, {"value", "1"}}})},
      {"spec.hostNetwork",
       With({{kPod + "/hostNetwork", true}}),
       "/spec/network",
       {{"hostNetwork", true}, {"networkPolicy", "None"}}},
      {"spec.serviceAccountName", With({{kPod + "/serviceAccountName", "s"}}),
       kOurPod + "/automountServiceAccountToken", true},
      {"--nnodes",
       With({{kTrainer + "/command", Torchrun({"--nnodes=1:5"})}}),
       "/spec/elasticPolicy",
       {{"minReplicas", 1}, {"maxReplicas", 5}}},
      {"--nproc_per_node", With({{kTrainer + "/command", Torchrun({"--nproc_per_node=6"})}}),
       "/spec/nprocPerNode", 6},
      {"--max_restarts", With({{kTrainer + "/command", Torchrun({"--max_restarts", "8"})}}),
       "/spec/failurePolicy/inPlaceLimit", 8},
      {"--rdzv_conf", With({{kTrainer + "/command", Torchrun({"--rdzv_conf=x=1,last_call_timeout=4"})}}),
       "/spec/rendezvous/lastCallSeconds", 4},
      {"--module",
       With({{kTrainer + "/command", Torchrun({"--module"})}}),
       kOurTrainer + "/command",
       {"python3", "-m", "t.py"}},
      {"--no_python", With({{kTrainer + "/command", Torchrun({"--no_python"})}}), kOurTrainer + "/command",
       Json::array({"t.py"})},
      {"join_timeout",
       With({{kTrainer + "/command", Torchrun({"--rdzv_conf=join_timeout=3"})}}),
       "/spec/rendezvous",
       {{"joinTimeoutSeconds", 3}}},
      {"last_call_timeout",
       With({{kTrainer + "/command", Torchrun({"--rdzv_conf=last_call_timeout=3"})}}),
       "/spec/rendezvous",
       {{"lastCallSeconds", 3}}},
      {"keep_alive_interval",
       With({{kTrainer + "/command", Torchrun({"--rdzv_conf=keep_alive_interval=4"})}}),
       "/spec/rendezvous",
       {{"heartbeatIntervalSeconds", 4}, {"heartbeatTimeoutSeconds", 12}}},
      {"keep_alive_max_attempt",
       With({{kTrainer + "/command", Torchrun({"--rdzv_conf=keep_alive_max_attempt=4"})}}),
       "/spec/rendezvous",
       {{"heartbeatTimeoutSeconds", 20}}},
  };
}

TEST(ConvertPyTorchJob, KeepsEveryFieldThatHasACounterpart) {
  std::set<std::string_view> shown;
  const std::vector<FieldCase> cases = FieldCases();
  for (const auto& [field, theirs, place, becomes] : cases) {
    EXPECT_EQ(At(theirs, place), becomes) << field << "\n" << ConvertPyTorchJob(theirs).job.dump(2);
    shown.insert(field);
  }
  for (const auto fields : {JobFields(), TemplateFields(), LaunchFlags(), RendezvousKeys()}) {
    for (const Field& field : fields) {
      EXPECT_EQ(shown.contains(field.theirs), field.fate == Fate::kBecomes) << field.theirs;
    }
  }
}

// A valid value of the field.
Json WithField(const std::string& field) {
  std::string place = "/" + field;
  std::replace(place.begin(), place.end(), '.', '/');
  return With({{place, "x"}});
}

TEST(ConvertPyTorchJob, SaysWhatHasNoCounterpart) {
  const auto expect = [](const Field& field, const Json& theirs, const std::string& path) {
    const auto texts = field.fate == Fate::kLost ? Errors(theirs) : Warnings(theirs);
    EXPECT_THAT(texts,
                Contains(path + (field.fate == Fate::kLost ? ": cannot be kept: " : ": is not needed: ") +
                         std::string(field.remark)));
  };
  const std::string pod = "spec.pytorchReplicaSpecs.Worker.template.";
  for (const Field& field : JobFields()) {
    if (field.fate != Fate::kBecomes)
      expect(field, WithField(std::string(field.theirs)), std::string(field.theirs));
  }
  for (const std::string key : {"restartPolicy", "hostname", "subdomain", "nodeName"}) {
    const Field* field = FindField(TemplateFields(), "spec." + key);
    ASSERT_NE(field, nullptr);
    expect(*field, With({{kPod + "/" + key, "Always"}}), pod + "spec." + key);
    EXPECT_EQ(At(With({{kPod + "/" + key, "Always"}}), kOurPod + "/" + key), Json());
  }
  const Json with_port = With({{kTrainer + "/ports", {{{"name", "pytorchjob-port"}}, {{"name", "web"}}}}});
  expect(*FindField(TemplateFields(), "spec.containers[pytorch].ports[pytorchjob-port]"), with_port,
         pod + "spec.containers[0].ports[pytorchjob-port]");
  EXPECT_EQ(At(with_port, kOurTrainer + "/ports"), Json::array({{{"name", "web"}}}));
  for (const Field& field : LaunchFlags()) {
    if (field.fate != Fate::kBecomes) {
      expect(field, With({{kTrainer + "/command", Torchrun({std::string(field.theirs) + "=x"})}}),
             pod + "spec.containers[0].command " + std::string(field.theirs));
    }
  }
  for (const Field& field : RendezvousKeys()) {
    const std::string key(field.theirs);
    if (field.fate != Fate::kBecomes) {
      expect(field, With({{"/spec/elasticPolicy/rdzvConf", {{{"key", key}, {"value", "1"}}}}}),
             "spec.elasticPolicy.rdzvConf[" + key + "]");
    }
  }
}

TEST(ConvertPyTorchJob, RefusesFieldsThatItDoesNotKnow) {
  EXPECT_THAT(Errors(With({{"/spec/runPolicy/newField", 1}, {"/extra", 1}})),
              testing::UnorderedElementsAre(HasSubstr("spec.runPolicy.newField: is not a field"),
                                            HasSubstr("extra: is not a field")));
  EXPECT_THAT(Errors(With({{"/status", {{"a", 1}}}, {"/metadata/uid", "u"}})), IsEmpty());
  EXPECT_THAT(Errors(With({{"/spec/runPolicy/backoffLimit", "many"}})),
              Contains(HasSubstr("must be an integer")));
}

TEST(ConvertPyTorchJob, KeepsKubeflowsDefaults) {
  const Json job = ConvertPyTorchJob(Job()).job;
  EXPECT_EQ(job[Pointer("/spec/nprocPerNode")], 1);
  EXPECT_EQ(job[Pointer("/spec/failurePolicy/maxRestarts")], 1'000'000);
  EXPECT_EQ(job[Pointer("/spec/runPolicy/cleanPodPolicy")], "None");
  EXPECT_FALSE(job[Pointer("/spec")].contains("successPolicy"));
  EXPECT_EQ(At(WithMaster(), "/spec/successPolicy/type"), "Rank0");
  EXPECT_EQ(At(With({{"/spec/elasticPolicy/minReplicas", 1}, {"/spec/elasticPolicy/maxReplicas", 2}}),
               "/spec/successPolicy/type"),
            "Any");
  EXPECT_EQ(At(With({{"/spec/elasticPolicy/maxReplicas", 2}}), "/spec/elasticPolicy/minReplicas"), 2);
  EXPECT_THAT(cli::CheckManifest(job).problems, IsEmpty());
}

TEST(ConvertPyTorchJob, LeavesNothingBehindOfWhatMoves) {
  EXPECT_EQ(At(With({{kPod + "/hostNetwork", true}}), kOurPod + "/hostNetwork"), Json());
  const Json all_in_args =
      With({{kTrainer + "/command", {"torchrun"}}, {kTrainer + "/args", Json::array({"t.py"})}});
  EXPECT_EQ(At(all_in_args, kOurTrainer + "/args"), Json());
  const Json one_port = With({{kTrainer + "/ports", Json::array({{{"name", "pytorchjob-port"}}})}});
  EXPECT_EQ(At(one_port, kOurTrainer + "/ports"), Json());
  const Json policy = With({{"/spec/runPolicy/schedulingPolicy/priorityClass", "p"}});
  EXPECT_EQ(At(policy, "/spec/schedulingPolicy/gang"), Json({{"provider", "Auto"}}));
  EXPECT_EQ(At(With({{kPods + "/restartPolicy", "Never"}}), "/spec/failurePolicy/inPlaceLimit"), 0);
}

TEST(ConvertPyTorchJob, CountsProcessesAsKubeflowDoes) {
  const auto with = [](const Json& asked, const Json& command, const Json& limits) {
    return With({{"/spec/nprocPerNode", asked},
                 {kTrainer + "/command", command},
                 {kTrainer + "/resources/limits", limits}});
  };
  const Json gpus = {{"nvidia.com/gpu", 4}};
  const Json none = Json::object();
  EXPECT_EQ(At(with("auto", Torchrun({}), gpus), "/spec/nprocPerNode"), "auto");
  EXPECT_EQ(At(with("gpu", Torchrun({}), gpus), "/spec/nprocPerNode"), "auto");
  EXPECT_EQ(At(with("auto", Torchrun({}), none), "/spec/nprocPerNode"), "cpu");
  EXPECT_THAT(Warnings(with("auto", Torchrun({}), none)),
              Contains(HasSubstr("spec.nprocPerNode: auto is one process")));
  EXPECT_EQ(At(with("4", Torchrun({"--nproc_per_node=2"}), gpus), "/spec/nprocPerNode"), 2);
  EXPECT_EQ(At(with("4", Torchrun({"--nproc_per_node=$PET_NPROC_PER_NODE"}), gpus), "/spec/nprocPerNode"), 4);
  EXPECT_EQ(At(with("auto", {"python3", "t.py"}, gpus), "/spec/nprocPerNode"), 1);
  EXPECT_THAT(Errors(with("4", {"python3", "t.py"}, gpus)),
              Contains(HasSubstr("is 4, but the command is not torchrun")));
  EXPECT_THAT(Errors(with("gpu", Torchrun({}), none)), Contains(HasSubstr("no limit of GPUs")));
  EXPECT_THAT(Errors(with("auto", Torchrun({"--nproc_per_node=$N"}), gpus)),
              Contains(HasSubstr("known only in the pod")));
}

TEST(ConvertPyTorchJob, NamesEachFieldInWhichMasterAndWorkerDiffer) {
  Json job = WithMaster({{kPods + "/restartPolicy", "Never"}});
  EXPECT_THAT(Errors(job), IsEmpty());
  Json& master = job["spec"]["pytorchReplicaSpecs"]["Master"];
  master["restartPolicy"] = "OnFailure";
  master["template"]["spec"]["containers"][0]["image"] = "other";
  master["template"]["spec"]["nodeSelector"] = {{"pool", "cpu"}};
  EXPECT_THAT(Errors(job),
              testing::ElementsAre(
                  HasSubstr("Master: restartPolicy is OnFailure, but of the Worker Never"),
                  HasSubstr("template.spec.containers[0].image is \"other\", but of the Worker \"i\""),
                  HasSubstr("template.spec.nodeSelector is {\"pool\":\"cpu\"}, but of the Worker absent")));
  EXPECT_EQ(At(job, kOurTrainer + "/image"), "i");
}

TEST(ConvertPyTorchJob, ComparesMasterAndWorkerWithoutTorchrunsFlags) {
  Json job = WithMaster({{kTrainer + "/command", Torchrun({"--node_rank=1"})}});
  job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"] =
      Torchrun({"--node_rank=0"});
  EXPECT_THAT(Errors(job), IsEmpty());
}

TEST(ConvertPyTorchJob, TakesReplicaTypesInAnyCase) {
  Json job = Job();
  Json& specs = job["spec"]["pytorchReplicaSpecs"];
  specs["worker"] = specs["Worker"];
  specs.erase("Worker");
  EXPECT_EQ(At(job, "/spec/worker/replicas"), 2);
  EXPECT_THAT(Errors(job), IsEmpty());
}

TEST(ConvertPyTorchJob, TurnsExitCodesIntoRules) {
  const Json job = With({{kPods + "/restartPolicy", "ExitCode"}, {kTrainer + "/command", Torchrun({})}});
  Json codes = Json::array();
  for (const Json& rule : At(job, "/spec/failurePolicy/rules")) {
    EXPECT_EQ(rule["action"], "FailJob");
    for (const Json& code : rule["onExitCodes"]["values"]) codes.push_back(code);
  }
  ASSERT_EQ(codes.size(), 127U);
  EXPECT_EQ(codes.front(), 1);
  EXPECT_EQ(codes.back(), 127);
  EXPECT_THAT(Warnings(job), Contains(HasSubstr("restartPolicy: is ExitCode: torchrun ended with 1")));
  EXPECT_THAT(cli::CheckManifest(ConvertPyTorchJob(job).job).problems, IsEmpty());
  EXPECT_THAT(Warnings(With({{kPods + "/restartPolicy", "Always"}})),
              Contains(HasSubstr("is not started again")));
  EXPECT_THAT(Errors(With({{kPods + "/restartPolicy", "Sometimes"}})), Contains(HasSubstr("must be Always")));
}

TEST(ConvertPyTorchJob, KeepsTheContainersNameWhereItIsReferredTo) {
  const Json job =
      With({{kTrainer + "/env",
             Json::array(
                 {{{"name", "M"}, {"valueFrom", {{"resourceFieldRef", {{"containerName", "pytorch"}}}}}}})}});
  EXPECT_EQ(At(job, "/spec/worker/containerName"), "pytorch");
  EXPECT_EQ(At(job, kOurTrainer + "/name"), "pytorch");
  EXPECT_THAT(cli::CheckManifest(ConvertPyTorchJob(job).job).problems, IsEmpty());
}

TEST(ConvertPyTorchJob, RefusesWhatWouldDoSomethingElse) {
  const struct {
    Json job;
    std::string error;
  } cases[] = {
      {With({{kTrainer + "/command", Json::array()}}), "cannot know the entry point of an image"},
      {With({{kTrainer + "/name", "main"}}), "must hold a container named pytorch"},
      {With({{kTrainer + "/args", {"--rank=$(RANK)"}}}), "$(RANK) is not known when the pod starts"},
      {With({{kTrainer + "/command", Torchrun({"--nnodes=4"})}}), "--nnodes: is 4, but the replicas are 2"},
      {With({{"/spec/elasticPolicy/minReplicas", 3}}), "is 3 to 3, but there are 2 replicas"},
      {With({{kPod + "/affinity", {{"matchLabels", {{"training.kubeflow.org/job-name", "a"}}}}}}),
       "names a label of Kubeflow's pods"},
      {With({{"/spec/runPolicy/managedBy", "kueue.x-k8s.io/multikueue"}}), "MultiKueue does not support"},
      {With({{"/spec/runPolicy/schedulingPolicy/queue", "gold"}}), "queues of Volcano"},
  };
  for (const auto& [job, error] : cases) EXPECT_THAT(Errors(job), Contains(HasSubstr(error))) << error;
  EXPECT_THAT(Errors(With({{"/spec/runPolicy/schedulingPolicy/queue", "default"},
                           {"/spec/runPolicy/managedBy", "kubeflow.org/training-operator"}})),
              IsEmpty());
}

TEST(ConvertPyTorchJob, WarnsOfWhatHasNoEffect) {
  EXPECT_THAT(
      Warnings(With({{kTrainer + "/env", Json::array({{{"name", "PET_MAX_RESTARTS"}, {"value", "3"}}})}})),
      Contains(HasSubstr("env[PET_MAX_RESTARTS]: has no effect")));
  EXPECT_THAT(Warnings(With({{"/metadata/labels", {{"kueue.x-k8s.io/queue-name", "q"}}},
                             {"/spec/runPolicy/suspend", true}})),
              Contains(HasSubstr("spec.runPolicy.suspend: is left out: Kueue sets it")));
  const Json prepared =
      With({{kTrainer + "/command", {"sh", "-c", "pip install x && torchrun --nproc_per_node=2 t.py"}}});
  EXPECT_THAT(Warnings(prepared), Contains(HasSubstr("now happens once in each rank")));
  EXPECT_TRUE(
      ConvertPyTorchJob(prepared).comments.contains("spec.worker.template.spec.containers[0].command"));
}

}  // namespace
}  // namespace lockstep::convert
