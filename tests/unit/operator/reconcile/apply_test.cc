#include "operator/reconcile/apply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/owner.h"
#include "runtime/common/api/names.h"
#include "tests/support/fake_kube.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobWorld;

class ApplyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Json job = {{"apiVersion", api::kApiVersion},
                      {"kind", api::kKind},
                      {"metadata", {{"namespace", "team"}, {"name", "job"}}},
                      {"spec", {{"worker", {{"template", Json::object()}}}}}};
    const Json created = *kube_.Create(kJobs, job);
    caches_.jobs.Put(created);
    world_.observed().job.metadata.uid = kube::UidOf(created);
    world_.observed().job.metadata.resource_version = StringAt(created, {"metadata", "resourceVersion"});
    world_.SyncObjects();
  }
  Applied Apply(std::vector<PlannedAction> actions) { return applier_.Apply(world_.observed(), actions); }
  Json PodOwnedBy(const std::string& uid, int slot) {
    api::TrainingJob job = world_.observed().job;
    job.metadata.uid = uid;
    return {{"metadata", OwnedMetadata(job, api::PodName("job", slot))}};
  }
  ApplyObject Desired(const kube::Resource& resource) { return {resource, world_.Owned(resource)}; }
  std::string own_uid() { return world_.observed().job.metadata.uid; }

  testing::FakeKube kube_;
  Caches caches_;
  Applier applier_{kube_, caches_};
  JobWorld world_;
};

TEST_F(ApplyTest, WritesAndLearnsWhatItWrote) {
  world_.observed().settings.installation = "system/lockstep-leader";
  const Applied applied = Apply({{ClaimJob{}, ""},
                                 {Desired(kube::kServices), ""},
                                 {Desired(kube::kConfigMaps), ""},
                                 {CreatePod{PodOwnedBy(own_uid(), 0)}, ""}});
  ASSERT_FALSE(applied.error.has_value()) << applied.error->ToString();
  const std::string index = IndexOf(IdentityOf(world_.observed().job));
  EXPECT_EQ(caches_.pods.ByIndex(index).size(), 1U);
  EXPECT_EQ(caches_.owned.at("services.v1").ByIndex(index).size(), 1U);
  const Json metadata = (*caches_.jobs.Get({"team", "job"}))["metadata"];
  EXPECT_EQ(metadata["finalizers"], Json::array({api::kFinalizer}));
  EXPECT_EQ(metadata["annotations"][api::kAnnotationInstallation], "system/lockstep-leader");
}

TEST_F(ApplyTest, WritesNothingForAJobThatAnotherInstallationClaimsMeanwhile) {
  const auto claimed = kube_.Patch(
      kJobs, {"team", "job"},
      {{"metadata", {{"annotations", {{api::kAnnotationInstallation, "other/lockstep-leader"}}}}}}, {});
  ASSERT_TRUE(claimed.ok());
  const std::size_t writes = kube_.writes().size();
  const Applied applied =
      Apply({{ClaimJob{}, ""}, {Desired(kube::kServices), ""}, {Desired(kube::kConfigMaps), ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_EQ(applied.error->code, ErrorCode::kConflict);
  EXPECT_EQ(kube_.writes().size(), writes + 1) << "the claim, which was refused";
}

TEST_F(ApplyTest, AnExceptionOfAWriteReachesTheCallerFromWhicheverThread) {
  std::vector<PlannedAction> actions;
  for (int slot = 0; slot < 50; ++slot) actions.push_back({CreatePod{PodOwnedBy(own_uid(), slot)}, ""});
  std::atomic<int> asked = 0;
  kube_.fault = [&](const std::string&, const std::string&, const kube::ObjectKey&) -> std::optional<Error> {
    if (++asked > 20) throw std::runtime_error("thrown");  // while several threads work
    return std::nullopt;
  };
  EXPECT_THROW((void)Apply(actions), std::runtime_error);
  kube_.fault = {};
  EXPECT_FALSE(Apply(actions).error.has_value());
}

TEST_F(ApplyTest, CreatesManyPodsAtOnce) {
  std::vector<PlannedAction> actions;
  for (int slot = 0; slot < 50; ++slot) actions.push_back({CreatePod{PodOwnedBy(own_uid(), slot)}, ""});
  EXPECT_FALSE(Apply(actions).error.has_value());
  EXPECT_EQ(caches_.pods.size(), 50U);
}

TEST_F(ApplyTest, OnePodIsRefusedWhereAllWouldBe) {
  std::vector<PlannedAction> actions;
  for (int slot = 0; slot < 50; ++slot) actions.push_back({CreatePod{PodOwnedBy(own_uid(), slot)}, ""});
  std::atomic<int> asked = 0;
  kube_.fault = [&](const std::string&, const std::string&, const kube::ObjectKey&) {
    ++asked;
    return std::optional(Error{ErrorCode::kForbidden, "exceeded quota"});
  };
  EXPECT_TRUE(Apply(actions).is_refusal);
  EXPECT_EQ(asked, 1);
}

TEST_F(ApplyTest, CreatesTwiceAsManyPodsEachTime) {
  std::vector<PlannedAction> actions;
  for (int slot = 0; slot < 7; ++slot) actions.push_back({CreatePod{PodOwnedBy(own_uid(), slot)}, ""});
  ASSERT_FALSE(Apply(actions).error.has_value());
  std::vector<std::set<std::string>> batches(3);
  const std::vector<std::string> writes = kube_.writes();
  for (std::size_t i = 1; i < writes.size(); ++i)  // the first write is the job's
    batches[i == 1 ? 0 : i <= 3 ? 1 : 2].insert(writes[i]);
  const auto pods = [](int first, int last) {
    std::set<std::string> names;
    for (int slot = first; slot <= last; ++slot) names.insert("POST pods/" + api::PodName("job", slot));
    return names;
  };
  EXPECT_THAT(batches, ElementsAre(pods(0, 0), pods(1, 2), pods(3, 6)));
}

TEST_F(ApplyTest, CreatingTwiceIsCreatingOnce) {
  ASSERT_TRUE(kube_.Create(kube::kPods, PodOwnedBy(own_uid(), 0)).ok());
  EXPECT_FALSE(Apply({{CreatePod{PodOwnedBy(own_uid(), 0)}, ""}}).error.has_value());
}

TEST_F(ApplyTest, DoesNotTakeAPodOfThatNameForItsOwn) {
  ASSERT_TRUE(kube_.Create(kube::kPods, PodOwnedBy("somebody", 0)).ok());
  const Applied applied = Apply({{CreatePod{PodOwnedBy(own_uid(), 0)}, ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_TRUE(applied.is_refusal);
  EXPECT_THAT(applied.error->message, HasSubstr("does not belong to this job"));
}

TEST_F(ApplyTest, TakesNothingForItsOwnThatOnlyHasTheJobsUid) {
  Json pod = PodOwnedBy(own_uid(), 0);
  Json service = world_.Owned(kube::kServices);
  for (Json* object : {&pod, &service}) (*object)["metadata"]["ownerReferences"][0]["kind"] = "Job";
  ASSERT_TRUE(kube_.Create(kube::kPods, pod).ok());
  ASSERT_TRUE(kube_.Create(kube::kServices, service).ok());
  for (const Action& action :
       {Action(CreatePod{PodOwnedBy(own_uid(), 0)}), Action(Desired(kube::kServices))}) {
    const Applied applied = Apply({{action, ""}});
    ASSERT_TRUE(applied.error.has_value());
    EXPECT_THAT(applied.error->message, HasSubstr("does not belong to this job"));
  }
}

TEST_F(ApplyTest, DoesNotTakeOverAServiceOfThatName) {
  ASSERT_TRUE(kube_
                  .Create(kube::kServices, {{"metadata", {{"namespace", "team"}, {"name", "job"}}},
                                            {"spec", {{"clusterIP", "10.0.0.1"}}}})
                  .ok());
  const Applied applied = Apply({{Desired(kube::kServices), ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_EQ(kube_.all(kube::kServices)[0]["spec"]["clusterIP"], "10.0.0.1");
}

TEST_F(ApplyTest, BringsUpToDateWhatAnEarlierPassMade) {
  Json older = world_.Owned(kube::kConfigMaps);
  older["data"]["config.json"] = "older";
  ASSERT_TRUE(kube_.Create(kube::kConfigMaps, older).ok());  // not in the cache yet
  EXPECT_FALSE(Apply({{Desired(kube::kConfigMaps), ""}}).error.has_value());
  EXPECT_EQ(kube_.all(kube::kConfigMaps)[0]["data"], world_.Owned(kube::kConfigMaps)["data"]);
}

TEST_F(ApplyTest, NamesTheFieldFromWhichAnInvalidObjectWasMade) {
  kube_.fault = [](const auto&...) { return Error{ErrorCode::kInvalidArgument, "422 bad"}; };
  EXPECT_EQ(Apply({{CreatePod{PodOwnedBy(own_uid(), 0)}, ""}}).error->message,
            "spec.worker.template: the API server refuses the pod: 422 bad");
  const Json autoscaler = {{"metadata", OwnedMetadata(world_.observed().job, "job")}};
  EXPECT_EQ(Apply({{ApplyObject{kAutoscalers, autoscaler}, ""}}).error->message,
            "spec.elasticPolicy.metrics: the API server refuses the HorizontalPodAutoscaler: 422 bad");
}

TEST_F(ApplyTest, ARejectedWorkloadUpdateDoesNotRejectTheJob) {
  kube_.fault = [](const auto&...) { return Error{ErrorCode::kInvalidArgument, "422 bad"}; };
  const Applied applied = Apply({{PatchStatus{kWorkloads, "job", "1", Json::object()}, ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_FALSE(applied.is_refusal) << "what Lockstep writes there is its own business, no user's";
}

// A missing verb in a role is a problem of the installation; a completed job must not become Stalled by it.
TEST_F(ApplyTest, ARefusedDeletionIsNoRefusalOfTheJob) {
  kube_.fault = [](const auto&...) { return Error{ErrorCode::kForbidden, "403 cannot delete"}; };
  for (const Action& action :
       {Action(DeleteJob{own_uid(), "1"}), Action(DeleteObject{kube::kServices, "job", "u"}),
        Action(DeletePod{"job-worker-0", "u", "1"}), Action(EndRemoval{"job-removal", "u"})}) {
    const Applied applied = Apply({{action, ""}});
    ASSERT_TRUE(applied.error.has_value());
    EXPECT_FALSE(applied.is_refusal) << action.index();
  }
  EXPECT_TRUE(Apply({{CreatePod{PodOwnedBy(own_uid(), 0)}, ""}}).is_refusal);
}

TEST_F(ApplyTest, DeletesOnlyWhatItSawAsItSawIt) {
  const Json pod = *kube_.Create(kube::kPods, PodOwnedBy(own_uid(), 0));
  const std::string version = StringAt(pod, {"metadata", "resourceVersion"});
  for (const DeletePod& stale :
       {DeletePod{"job-worker-0", "older", version}, DeletePod{"job-worker-0", kube::UidOf(pod), "1"}}) {
    const Applied refused = Apply({{stale, ""}});
    ASSERT_TRUE(refused.error.has_value()) << "a later pass must decide again";
    EXPECT_EQ(refused.error->code, ErrorCode::kConflict);
    EXPECT_FALSE(refused.is_refusal);
    EXPECT_EQ(kube_.all(kube::kPods).size(), 1U);
  }
  const DeletePod seen{"job-worker-0", kube::UidOf(pod), version};
  EXPECT_FALSE(Apply({{seen, ""}}).error.has_value());
  EXPECT_TRUE(kube_.all(kube::kPods).empty());
  EXPECT_FALSE(Apply({{seen, ""}}).error.has_value()) << "gone is gone";
}

TEST_F(ApplyTest, ChargesNoPodThatChangedSinceItWasRead) {
  ASSERT_TRUE(kube_.Create(kube::kPods, PodOwnedBy(own_uid(), 0)).ok());
  const Applied applied = Apply({{MarkPod{"job-worker-0", "1", 1}, ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_EQ(applied.error->code, ErrorCode::kConflict);
  EXPECT_FALSE(applied.is_refusal);
}

TEST_F(ApplyTest, CreatesMarksAndDeletesNoPodOfAJobThatChangedSinceItWasRead) {
  const Json pod = *kube_.Create(kube::kPods, PodOwnedBy(own_uid(), 0));
  const kube::ObjectKey key{"team", "job"};
  ASSERT_TRUE(kube_.Patch(kJobs, key, {{"spec", {{"suspend", true}}}}, {}).ok());
  for (const Action& action :
       {Action(CreatePod{PodOwnedBy(own_uid(), 1)}), Action(DeletePod{"job-worker-0", kube::UidOf(pod), ""}),
        Action(EndRemoval{"job-worker-0", kube::UidOf(pod)}), Action(MarkPod{"job-worker-0", "", 1})}) {
    const Applied refused = Apply({{action, ""}});
    ASSERT_TRUE(refused.error.has_value());
    EXPECT_EQ(refused.error->code, ErrorCode::kConflict);
    EXPECT_FALSE(refused.is_refusal);
  }
  EXPECT_EQ(kube_.all(kube::kPods).size(), 1U);
  EXPECT_EQ(StringAt(kube_.all(kube::kPods)[0], {"metadata", "annotations", api::kAnnotationAttempt}), "");
  EXPECT_TRUE(BoolAt(*caches_.jobs.Get(key), {"spec", "suspend"})) << "the next pass must know";
}

TEST_F(ApplyTest, StopsAtTheStageThatFails) {
  kube_.fault = [](const std::string&, const std::string& plural, const auto&) -> std::optional<Error> {
    if (plural == "configmaps") return Error{ErrorCode::kUnavailable, "away"};
    return std::nullopt;
  };
  const Applied applied =
      Apply({{Desired(kube::kConfigMaps), ""}, {CreatePod{PodOwnedBy(own_uid(), 0)}, ""}});
  ASSERT_TRUE(applied.error.has_value());
  EXPECT_TRUE(kube_.all(kube::kPods).empty());
}

TEST_F(ApplyTest, WritesTheStatusOnlyWhereItDiffers) {
  api::TrainingJobStatus status = world_.observed().job.status;
  EXPECT_FALSE(*applier_.WriteStatus(world_.observed(), status));
  status.state = "Running";
  EXPECT_TRUE(*applier_.WriteStatus(world_.observed(), status));
  EXPECT_EQ(kube_.all(kJobs)[0]["status"]["state"], "Running");
  const auto stale = applier_.WriteStatus(world_.observed(), status);
  ASSERT_FALSE(stale.ok()) << "observed is older than what we wrote";
  EXPECT_EQ(stale.error().code, ErrorCode::kConflict);
}

TEST(MergePatchBetween, IsTheSmallestThatLeadsFromOneToTheOther) {
  const Json before = *ParseJson(R"({"a": 1, "b": {"c": 1, "d": 2}, "e": [1], "gone": {}})");
  const Json after = *ParseJson(R"({"a": 1, "b": {"c": 9, "d": 2}, "e": [1, 2], "new": "x"})");
  const Json patch = MergePatchBetween(before, after);
  EXPECT_EQ(patch, *ParseJson(R"({"b": {"c": 9}, "e": [1, 2], "gone": null, "new": "x"})"));
  Json result = before;
  result.merge_patch(patch);
  EXPECT_EQ(result, after);
  EXPECT_EQ(MergePatchBetween(after, after), Json::object());
}

}  // namespace
}  // namespace lockstep::reconcile
