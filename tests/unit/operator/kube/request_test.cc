#include "operator/kube/request.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

constexpr Resource kJobs{"lockstep.dev", "v1alpha1", "distributedtrainingjobs", "DistributedTrainingJob"};

TEST(Request, PathsOfCoreAndNamedGroups) {
  EXPECT_EQ(GetRequest(kPods, {"team", "a"}).target, "/api/v1/namespaces/team/pods/a");
  EXPECT_EQ(GetRequest(kJobs, {"team", "a"}).target,
            "/apis/lockstep.dev/v1alpha1/namespaces/team/distributedtrainingjobs/a");
}

TEST(Request, ListAsksForPages) {
  EXPECT_EQ(ListRequest(kPods, {.label_selector = "a=b,c", .continue_token = "x/y", .limit = 7}).target,
            "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=7&continue=x%2Fy");
  EXPECT_EQ(ListRequest(kPods, {.name_space = "team"}).target, "/api/v1/namespaces/team/pods?limit=500");
}

TEST(Request, WatchOutlivesTheServersOwnEnd) {
  const auto request = WatchRequest(kPods, {.resource_version = "12", .timeout = std::chrono::seconds(90)});
  EXPECT_EQ(request.target,
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=12&timeoutSeconds=90");
  EXPECT_GT(request.timeout, std::chrono::seconds(90));
}

TEST(Request, CreatePostsTheTypedObject) {
  const auto request = CreateRequest(kPods, {{"metadata", {{"namespace", "team"}, {"name", "a"}}}});
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/api/v1/namespaces/team/pods");
  const Json body = *ParseJson(request.body);
  EXPECT_EQ(body["apiVersion"], "v1");
  EXPECT_EQ(body["kind"], "Pod");
}

TEST(Request, ApplyTakesFieldsOver) {
  const auto request = PatchRequest(kServices, {"team", "a"}, {},
                                    {.kind = PatchKind::kApply, .field_manager = "lockstep-operator"});
  EXPECT_EQ(request.method, "PATCH");
  EXPECT_EQ(request.target, "/api/v1/namespaces/team/services/a?fieldManager=lockstep-operator&force=true");
  EXPECT_EQ(request.headers.at("Content-Type"), "application/apply-patch+yaml");
}

TEST(Request, MergePatchOfAStatus) {
  const auto request = PatchRequest(kJobs, {"team", "a"}, {{"status", {}}}, {.subresource = "status"});
  EXPECT_TRUE(request.target.ends_with("/distributedtrainingjobs/a/status")) << request.target;
  EXPECT_EQ(request.headers.at("Content-Type"), "application/merge-patch+json");
}

TEST(Request, DeleteNamesTheIncarnation) {
  const Json body = *ParseJson(
      DeleteRequest(kPods, {"team", "a"}, {.uid = "u1", .resource_version = "7", .grace_seconds = 0}).body);
  EXPECT_EQ(body["preconditions"]["resourceVersion"], "7");
  EXPECT_EQ(body["preconditions"]["uid"], "u1");
  EXPECT_EQ(body["gracePeriodSeconds"], 0);
  EXPECT_EQ(body["propagationPolicy"], "Background");
}

}  // namespace
}  // namespace lockstep::kube
