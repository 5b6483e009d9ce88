#include "operator/reconcile/launcher.h"

#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "runtime/common/api/names.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using testing::JobWorld;

constexpr const char* kImage = "registry/lockstep-operator:1";

Json ProgramPod() {
  return *ParseJson(R"json({"spec": {
    "initContainers": [{"name": "data"}], "volumes": [{"name": "data"}],
    "containers": [{"name": "side", "image": "s"},
                   {"name": "trainer", "image": "python", "command": ["python3", "train.py"], "args": ["--lr", "$(LR)"],
                    "resources": {"requests": {"cpu": "2", "memory": "4Gi"},
                                  "limits": {"memory": "4Gi", "nvidia.com/gpu": 1}},
                    "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}})json");
}

TEST(Launcher, WrapsTheCommandOfAProgramAndBringsWhatRunsIt) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  job.spec.training.reset();
  Json pod = ProgramPod();
  AddLauncher(pod, job, {.launcher_image = kImage, .launcher_pull_policy = "Always"});
  const Json& spec = pod["spec"];
  const Json& trainer = spec["containers"][1];
  EXPECT_EQ(trainer["command"], *ParseJson(R"(["/opt/lockstep/ld.so", "--library-path", "/opt/lockstep",
                                               "/opt/lockstep/lockstep", "worker", "--"])"));
  EXPECT_EQ(trainer["args"], *ParseJson(R"json(["python3", "train.py", "--lr", "$(LR)"])json"))
      << "arguments still, for the kubelet to put in $(LR)";
  EXPECT_EQ(trainer["image"], "python");
  EXPECT_EQ(trainer["volumeMounts"].back()["mountPath"], "/opt/lockstep");
  EXPECT_EQ(trainer["volumeMounts"].back()["readOnly"], true);
  EXPECT_EQ(spec["containers"][0], (Json{{"name", "side"}, {"image", "s"}}));
  ASSERT_EQ(spec["initContainers"].size(), 2U);
  EXPECT_EQ(spec["initContainers"][1]["name"], "data");
  const Json& launcher = spec["initContainers"][0];
  EXPECT_EQ(launcher["name"], std::string(api::kLauncherContainer));
  EXPECT_EQ(launcher["image"], kImage);
  EXPECT_EQ(launcher["imagePullPolicy"], "Always");
  EXPECT_EQ(launcher["volumeMounts"][0]["name"], spec["volumes"][1]["name"]);
  EXPECT_EQ(spec["volumes"][1]["emptyDir"], Json::object());
}

TEST(Launcher, ChangesNeitherWhatThePodRequestsNorItsRights) {
  JobWorld world;
  world.observed().job.spec.training.reset();
  Json pod = ProgramPod();
  AddLauncher(pod, world.observed().job, {.launcher_image = kImage, .launcher_pull_policy = "Always"});
  const Json& launcher = pod["spec"]["initContainers"][0];
  EXPECT_EQ(launcher["resources"],
            *ParseJson(R"({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}})"));
  EXPECT_EQ(launcher["securityContext"], *ParseJson(R"({
    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
    "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})"));
}

TEST(Launcher, RunsAsThePodsUser) {
  JobWorld world;
  world.observed().job.spec.training.reset();
  for (const auto& [user, is_non_root] : {std::pair(1000680000, true), std::pair(0, false)}) {
    Json pod = ProgramPod();
    pod["spec"]["securityContext"]["runAsUser"] = user;
    AddLauncher(pod, world.observed().job, {.launcher_image = kImage, .launcher_pull_policy = ""});
    const Json& context = pod["spec"]["initContainers"][0]["securityContext"];
    EXPECT_FALSE(context.contains("runAsUser")) << user;
    EXPECT_EQ(context["runAsNonRoot"], is_non_root) << user;
  }
}

TEST(Launcher, LeavesATrainingAlone) {
  JobWorld world;
  Json pod = ProgramPod();
  AddLauncher(pod, world.observed().job, {.launcher_image = kImage, .launcher_pull_policy = "Always"});
  EXPECT_EQ(pod, ProgramPod());
}

TEST(Launcher, IsInThePodsThatAreMade) {
  JobWorld world;
  world.observed().settings.launcher_image = kImage;
  world.observed().job.spec.training.reset();
  world.observed().job.spec.worker.pod_template = ProgramPod();
  world.SyncObjects();
  const Plan plan = MakePlan(world.observed());
  int made = 0;
  for (const PlannedAction& entry : plan.actions) {
    const auto* create = std::get_if<CreatePod>(&entry.action);
    if (create == nullptr) continue;
    ++made;
    EXPECT_EQ(create->object["spec"]["initContainers"][0]["image"], kImage);
  }
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace lockstep::reconcile
