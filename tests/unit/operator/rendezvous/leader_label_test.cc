#include "operator/rendezvous/leader_label.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/base/clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::rendezvous {
namespace {

const kube::ObjectKey kLeader{"system", "a"};

// Pods of operators, and a pause that counts its calls instead of waiting.
class LeaderLabel : public ::testing::Test {
 protected:
  void AddPod(const std::string& name, bool is_labelled, const std::string& instance = "lockstep") {
    Json pod = {
        {"metadata",
         {{"namespace", "system"},
          {"name", name},
          {"labels", {{"app.kubernetes.io/name", "lockstep"}, {"app.kubernetes.io/instance", instance}}}}}};
    if (is_labelled) pod["metadata"]["labels"]["lockstep.dev/leader"] = "true";
    ASSERT_TRUE(kube_.Create(kube::kPods, pod).ok());
  }
  std::vector<std::string> Labelled() const {
    std::vector<std::string> names;
    for (const Json& pod : kube_.all(kube::kPods)) {
      if (pod["metadata"]["labels"].contains("lockstep.dev/leader")) names.push_back(kube::KeyOf(pod).name);
    }
    return names;
  }
  // The first `times` writes fail.
  void Fail(ErrorCode code, int times) {
    kube_.fault = [code, times](const auto&, const auto&, const auto&) mutable -> std::optional<Error> {
      return times-- > 0 ? std::optional(Error{code, "as the test says"}) : std::nullopt;
    };
  }
  // Stops the loop at the pause of this number.
  kube::Pause PauseUntil(std::size_t last) {
    return [this, last](Milliseconds time, const std::stop_token& stop) {
      pauses_.push_back(time);
      if (pauses_.size() == last) stop_.request_stop();
      return !stop.stop_requested();
    };
  }

  testing::FakeKube kube_;
  std::stop_source stop_;
  std::vector<Milliseconds> pauses_;
};

TEST_F(LeaderLabel, IsRemovedOnceTheApiServerAnswersAgain) {
  AddPod("a", true);
  Fail(ErrorCode::kUnavailable, 3);
  RemoveLeaderLabel(kube_, kLeader, stop_.get_token(), PauseUntil(0));
  EXPECT_EQ(Labelled(), std::vector<std::string>{});
  ASSERT_EQ(pauses_.size(), 3U);
  EXPECT_GT(pauses_[2], pauses_[0]) << "with back-off";
}

TEST_F(LeaderLabel, IsNotAskedForAgainWhereItIsForbidden) {
  AddPod("a", true);
  Fail(ErrorCode::kForbidden, 1);
  RemoveLeaderLabel(kube_, kLeader, stop_.get_token(), PauseUntil(0));
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(LeaderLabel, AStopEndsTheAttempts) {
  AddPod("a", true);
  Fail(ErrorCode::kUnavailable, 100);
  RemoveLeaderLabel(kube_, kLeader, stop_.get_token(), PauseUntil(2));
  EXPECT_EQ(Labelled(), std::vector<std::string>{"a"});
  EXPECT_EQ(pauses_.size(), 2U);
}

TEST_F(LeaderLabel, IsOfTheLeadersOnly) {
  AddPod("a", false);
  AddPod("b", true);
  AddPod("e", true);
  AddPod("c", true, "of another installation");
  AddPod("d", true);
  ASSERT_TRUE(LabelLeadersOnly(kube_, kLeader, {"a", "e"}).ok());
  EXPECT_EQ(Labelled(), (std::vector<std::string>{"a", "c", "e"}));
  const std::size_t writes = kube_.writes().size();
  ASSERT_TRUE(LabelLeadersOnly(kube_, kLeader, {"a", "e"}).ok());
  EXPECT_EQ(kube_.writes().size(), writes) << "nothing is written again";
}

TEST_F(LeaderLabel, AnOperatorOutsideOfAPodLabelsNone) {
  AddPod("b", true);
  EXPECT_TRUE(LabelLeader(kube_, kLeader, true).ok());
  EXPECT_TRUE(LabelLeadersOnly(kube_, kLeader, {"a", "e"}).ok());
  EXPECT_EQ(Labelled(), std::vector<std::string>{"b"});
}

TEST_F(LeaderLabel, IsKeptWhileTheLeaderLeads) {
  AddPod("a", false);
  AddPod("b", true);
  Fail(ErrorCode::kUnavailable, 2);
  const auto none = [] { return std::set<std::string>(); };
  KeepLeaderLabel(kube_, kLeader, none, stop_.get_token(),
                  [this](Milliseconds time, const std::stop_token& stop) {
                    pauses_.push_back(time);
                    if (pauses_.size() == 3) {
                      EXPECT_EQ(Labelled(), std::vector<std::string>{"a"}) << "after two failures";
                      EXPECT_GT(time, pauses_[1]);
                      AddPod("late", true);
                    }
                    if (pauses_.size() == 4) stop_.request_stop();
                    return !stop.stop_requested();
                  });
  EXPECT_EQ(Labelled(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace lockstep::rendezvous
