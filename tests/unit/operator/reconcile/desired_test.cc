#include "operator/reconcile/desired.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "operator/reconcile/desired_pod.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using testing::JobWorld;

const Json& Named(const Json& list, const std::string& name) {
  static const Json none;
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Json& entry) { return entry["name"] == name; });
  return found == list.end() ? none : *found;
}

TEST(DesiredPod, AddsWhatAWorkerNeedsAndKeepsWhatTheUserWrote) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  job.spec.worker.pod_template = *ParseJson(R"json({
    "metadata": {"labels": {"team": "a", "lockstep.dev/slot": "9"}, "annotations": {"note": "x"}},
    "spec": {"securityContext": {"runAsNonRoot": true}, "volumes": [{"name": "data"}],
             "containers": [{"name": "side", "image": "s"},
                            {"name": "trainer", "image": "w", "env": [{"name": "A", "value": "$(LOCKSTEP_SLOT)"}],
                             "volumeMounts": [{"name": "data", "mountPath": "/d"}],
                             "securityContext": {"capabilities": {"drop": ["ALL"]}}}]}})json");
  job.spec.checkpoint = api::CheckpointSpec{
      .uri = "s3://b", .secret_ref = api::SecretReference{"s3"}, .grace_period_seconds = 77};
  const Json pod = DesiredPod(job, 1);
  EXPECT_EQ(pod["metadata"]["name"], "job-worker-1");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"]["lockstep.dev/slot"], "1");
  EXPECT_EQ(pod["metadata"]["annotations"]["note"], "x");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["controller"], true);
  EXPECT_FALSE(pod["metadata"]["ownerReferences"][0].contains("blockOwnerDeletion"));
  const Json& spec = pod["spec"];
  EXPECT_EQ(spec["restartPolicy"], "Never");
  EXPECT_EQ(spec["hostname"], "job-worker-1");
  EXPECT_EQ(spec["subdomain"], "job");
  EXPECT_EQ(spec["automountServiceAccountToken"], false);
  EXPECT_EQ(spec["terminationGracePeriodSeconds"], 77);
  EXPECT_EQ(spec["securityContext"], (Json{{"runAsNonRoot", true}}));
  EXPECT_EQ(spec["volumes"].size(), 4U);
  const Json& token =
      Named(spec["volumes"], "lockstep-token")["projected"]["sources"][0]["serviceAccountToken"];
  EXPECT_EQ(token["audience"], "lockstep");
  EXPECT_EQ(token["expirationSeconds"], 3600);
  EXPECT_EQ(spec["containers"][0], (Json{{"name", "side"}, {"image", "s"}})) << "sidecars stay untouched";
  const Json& trainer = spec["containers"][1];
  EXPECT_FALSE(trainer.contains("command")) << "the image's entry point is used";
  EXPECT_EQ(trainer["securityContext"]["capabilities"]["drop"][0], "ALL");
  EXPECT_EQ(trainer["envFrom"][0]["secretRef"]["name"], "s3");
  EXPECT_EQ(Named(trainer["env"], "LOCKSTEP_SLOT")["value"], "1");
  EXPECT_EQ(Named(trainer["env"], "LOCKSTEP_POD_UID")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.uid");
  EXPECT_EQ(trainer["env"].back()["name"], "A") << "after ours, so that it may refer to them";
  EXPECT_EQ(Named(trainer["volumeMounts"], "lockstep-config")["mountPath"], "/etc/lockstep");
}

TEST(DesiredPod, GivesRemoteDataItsSecretAndAVolumeForCopies) {
  api::TrainingJob job = JobWorld().observed().job;
  job.spec.checkpoint = api::CheckpointSpec{.uri = "s3://b", .secret_ref = api::SecretReference{"s3"}};
  job.spec.training.emplace().data = {.format = api::DataFormat::kTokens, .path = "/d"};
  EXPECT_EQ(DesiredPod(job, 0)["spec"]["containers"][0]["envFrom"].size(), 1U);
  job.spec.training->data.path = "s3://data/text";
  job.spec.training->data.secret_ref = api::SecretReference{"data"};
  const Json pod = DesiredPod(job, 0);
  const Json& trainer = pod["spec"]["containers"][0];
  EXPECT_EQ(trainer["envFrom"], *ParseJson(R"([{"secretRef": {"name": "s3"}},
                           {"prefix": "LOCKSTEP_DATA_", "secretRef": {"name": "data"}}])"));
  EXPECT_EQ(Named(trainer["volumeMounts"], "lockstep-data")["mountPath"], "/var/cache/lockstep/data");
  EXPECT_EQ(Named(pod["spec"]["volumes"], "lockstep-data")["emptyDir"], Json::object());
  job.spec.training->data.cache = "/mine";
  EXPECT_EQ(DesiredPod(job, 0)["spec"]["volumes"].size(), pod["spec"]["volumes"].size() - 1)
      << "the user's own volume";
}

TEST(DesiredPod, HasSharedMemoryUnlessTheTemplateSaysWhich) {
  api::TrainingJob job = JobWorld().observed().job;
  Json& spec = job.spec.worker.pod_template["spec"];
  const auto path = [&job] {
    const Json pod = DesiredPod(job, 0);
    EXPECT_EQ(Named(pod["spec"]["volumes"], "lockstep-shm").is_null(),
              Named(pod["spec"]["containers"][0]["volumeMounts"], "lockstep-shm").is_null());
    return StringAt(Named(pod["spec"]["containers"][0]["volumeMounts"], "lockstep-shm"), {"mountPath"});
  };
  EXPECT_EQ(path(), "/dev/shm");
  EXPECT_EQ(Named(DesiredPod(job, 0)["spec"]["volumes"], "lockstep-shm")["emptyDir"],
            (Json{{"medium", "Memory"}}));
  for (const char* own : {"/dev/shm", "/dev/shm/", "/dev"}) {
    spec["containers"][0]["volumeMounts"] = *ParseJson(R"([{"name": "mine"}])");
    spec["containers"][0]["volumeMounts"][0]["mountPath"] = own;
    EXPECT_EQ(path(), "") << own;
  }
  spec["containers"][0]["volumeMounts"][0]["mountPath"] = "/dev/shm2";
  EXPECT_EQ(path(), "/dev/shm");
  spec["hostIPC"] = true;
  EXPECT_EQ(path(), "") << "that of the node";
}

TEST(DesiredPod, IsRestrictedWhereTheTemplateSaysNothing) {
  api::TrainingJob job = JobWorld().observed().job;
  const auto context = [&job] {
    const Json pod = DesiredPod(job, 0);
    return pod["spec"]["containers"][0].value("securityContext", Json());
  };
  job.spec.training.reset();
  EXPECT_EQ(context(), Json()) << "a program's image may need root";
  job.spec.training.emplace();
  EXPECT_EQ(context(), *ParseJson(R"({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                                      "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})"));
  Json& spec = job.spec.worker.pod_template["spec"];
  spec["securityContext"] = {{"runAsUser", 0}, {"seccompProfile", {{"type", "Unconfined"}}}};
  EXPECT_EQ(context(),
            *ParseJson(R"({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})"));
  spec["containers"][0]["securityContext"] = {{"privileged", true}};
  EXPECT_EQ(context(), (Json{{"privileged", true}}));
}

TEST(DesiredPod, DeclaresItsPortWhenItUsesTheHostNetwork) {
  api::TrainingJob job = JobWorld().observed().job;
  EXPECT_EQ(FindJson(DesiredPod(job, 0, {}), {"spec", "hostNetwork"}), nullptr);
  job.spec.network = api::NetworkSpec{.host_network = true, .network_policy = api::NetworkPolicy::kNone};
  const Json pod = DesiredPod(job, 0, {});
  EXPECT_EQ(pod["spec"]["hostNetwork"], true);
  EXPECT_EQ(pod["spec"]["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(pod["spec"]["containers"][0]["ports"],
            *ParseJson(R"([{"containerPort": 9400, "hostPort": 9400}])"));
  const Json listed = *ParseJson(R"([{"name": "metrics", "containerPort": 9400}])");
  job.spec.worker.pod_template["spec"]["containers"][0]["ports"] = listed;
  EXPECT_EQ(DesiredPod(job, 0, {})["spec"]["containers"][0]["ports"], listed) << "or it would be there twice";
}

TEST(DesiredPod, FollowsAnotherTerminationLog) {
  JobWorld world;
  world.observed().job.spec.worker.pod_template["spec"]["containers"][0]["terminationMessagePath"] =
      "/tmp/end";
  const Json pod = DesiredPod(world.observed().job, 0);
  EXPECT_EQ(Named(pod["spec"]["containers"][0]["env"], "LOCKSTEP_TERMINATION_LOG")["value"], "/tmp/end");
}

TEST(DesiredConfigMap, IsWhatAWorkerReads) {
  JobWorld world;
  world.observed().job.spec.nproc_per_node = {.mode = api::NprocMode::kCount, .count = 2};
  const Json config_map = DesiredConfigMap(world.observed().job, world.observed().settings);
  EXPECT_EQ(config_map["data"]["ca.crt"], "pem");
  const auto config =
      protocol::WorkerConfigFromJson(*ParseJson(config_map["data"]["config.json"].get<std::string>()));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->job, (protocol::JobIdentity{"team", "job", "job-uid"}));
  EXPECT_EQ(config->rendezvous.url, "https://rendezvous.system.svc:29400");
  EXPECT_EQ(config->rendezvous.ca_file, "/etc/lockstep/ca.crt");
  EXPECT_EQ(config->nproc, 2);
  EXPECT_EQ(config->training["globalBatchSize"], 64);
}

TEST(Covers, IgnoresWhatTheApiServerAdds) {
  const Json desired = *ParseJson(R"({"a": {"b": [1, {"c": 2}]}})");
  EXPECT_TRUE(Covers(*ParseJson(R"({"x": 0, "a": {"b": [1, {"c": 2, "d": 3}], "y": 0}})"), desired));
  EXPECT_FALSE(Covers(*ParseJson(R"({"a": {"b": [1, {"c": 3}]}})"), desired));
  EXPECT_FALSE(Covers(*ParseJson(R"({"a": {"b": [1]}})"), desired));
  EXPECT_FALSE(Covers(Json(), desired));
}

}  // namespace
}  // namespace lockstep::reconcile
