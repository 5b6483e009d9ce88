#include "operator/reconcile/owner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "operator/reconcile/false_owners.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/log.h"
#include "tests/support/fake_clock.h"

namespace lockstep::reconcile {
namespace {

const protocol::JobIdentity kJob{"team", "job", "job-uid"};

// A pod of the job, with `changes` in its owner reference.
Json OwnedPod(const Json& changes = Json::object(), const std::string& name_space = "team") {
  Json owner = {{"apiVersion", api::kApiVersion},
                {"kind", api::kKind},
                {"name", "job"},
                {"uid", "job-uid"},
                {"controller", true}};
  owner.update(changes);
  return {{"metadata",
           {{"name", "job-worker-0"},
            {"namespace", name_space},
            {"uid", name_space + "-pod"},
            {"ownerReferences", Json::array({std::move(owner)})}}}};
}

struct ForeignObject {
  const char* name;
  Json object;
  bool is_claim;  // to be logged
};

std::vector<ForeignObject> ForeignObjects() {
  return {{"another namespace", OwnedPod(Json::object(), "aaa"), true},
          {"another kind", OwnedPod({{"kind", "Job"}}), true},
          {"another API group", OwnedPod({{"apiVersion", "batch/v1"}}), true},
          {"another API version", OwnedPod({{"apiVersion", "lockstep.dev/v9"}}), true},
          {"another name", OwnedPod({{"name", "other"}}), true},
          {"another uid", OwnedPod({{"uid", "older"}}), false},
          {"no controller", OwnedPod({{"controller", false}}), false},
          {"no owner", {{"metadata", {{"name", "job-worker-0"}, {"namespace", "team"}}}}, false}};
}

TEST(JobOf, ComparesNamespaceKindVersionNameAndUid) {
  EXPECT_EQ(JobOf(OwnedPod()), kJob);
  EXPECT_EQ(IndexByJob(OwnedPod()), IndexOf(kJob));
  for (const ForeignObject& test : ForeignObjects()) {
    EXPECT_NE(JobOf(test.object), kJob) << test.name;
    EXPECT_NE(IndexByJob(test.object), IndexOf(kJob)) << test.name;
  }
}

class FalseOwnersTest : public ::testing::Test {
 protected:
  FalseOwnersTest() {
    log::SetLevel(log::Level::kWarning);  // other tests of this program change the level
    jobs_.Put({{"metadata",
                {{"name", "job"}, {"namespace", "team"}, {"uid", "job-uid"}, {"resourceVersion", "1"}}}});
  }
  std::string LogOf(const std::vector<Json>& objects) {
    ::testing::internal::CaptureStderr();
    for (const Json& object : objects) false_owners_.Check("pods.v1", object);
    return ::testing::internal::GetCapturedStderr();
  }

  testing::FakeClock clock_;
  kube::Store jobs_{{}, {kube::UidOf}};
  FalseOwners false_owners_{jobs_, clock_};
};

TEST_F(FalseOwnersTest, AnObjectOfTheJobIsNone) { EXPECT_EQ(LogOf({OwnedPod()}), ""); }

TEST_F(FalseOwnersTest, AnObjectWithTheUidThatIsNotOfTheJobIsLogged) {
  for (const ForeignObject& test : ForeignObjects()) {
    Json object = test.object;
    object["metadata"]["uid"] = test.name;
    EXPECT_EQ(!LogOf({object}).empty(), test.is_claim) << test.name;
  }
}

TEST_F(FalseOwnersTest, OneLineForEachUid) {
  Json again = OwnedPod(Json::object(), "aaa");
  again["metadata"]["uid"] = "another";
  const std::string log = LogOf({OwnedPod(Json::object(), "aaa"), OwnedPod(Json::object(), "aaa"), again});
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_NE(log.find(R"("object":"aaa/job-worker-0","object_uid":"aaa-pod")"), std::string::npos) << log;
  EXPECT_NE(log.find(R"("job":"team/job")"), std::string::npos) << log;
}

}  // namespace
}  // namespace lockstep::reconcile
