#include "operator/kube/event_recorder.h"

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::kube {
namespace {

using namespace std::chrono_literals;

const Json kJob = {{"kind", "DistributedTrainingJob"}, {"namespace", "team"}, {"name", "job"}, {"uid", "u1"}};
const EventNote kNote{
    .warning = true, .reason = "ReplicaFailed", .action = "Reconcile", .note = "exit code 1"};

TEST(EventToJson, HasWhatTheApiRequires) {
  const Json event =
      EventToJson(kJob, {.reason = "R", .action = "A", .note = std::string(2000, 'x')}, "pod", WallTime(1s));
  EXPECT_EQ(event["metadata"]["namespace"], "team");
  EXPECT_EQ(event["eventTime"], "1970-01-01T00:00:01.000000Z");
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(event["regarding"], kJob);
  EXPECT_LE(event["note"].get<std::string>().size(), 1024U);
}

TEST(EventRecorder, WritesARepeatedEventOnceThenCountsIt) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  {
    EventRecorder recorder(kube, clock, "pod");
    recorder.Record(kJob, kNote);
    recorder.Record(kJob, kNote);
    recorder.Record(kJob, {.reason = "Other", .action = "Reconcile", .note = "x"});
    ASSERT_TRUE(testing::Eventually([&] { return kube.all(kEvents).size() == 2; }));
    clock.Advance(31s);
    recorder.Record(kJob, kNote);
  }
  const auto events = kube.all(kEvents);
  ASSERT_EQ(events.size(), 2U);
  const Json& repeated = events[0]["reason"] == "ReplicaFailed" ? events[0] : events[1];
  EXPECT_EQ(repeated["series"]["count"], 3);
}

TEST(EventRecorder, EndsThoughNothingCanBeWritten) {
  testing::FakeKube kube;
  kube.fault = [](const auto&, const auto&, const auto&) { return Error{ErrorCode::kForbidden, "no"}; };
  const SystemClock clock;
  EventRecorder recorder(kube, clock, "pod");
  recorder.Record(kJob, kNote);
}

}  // namespace
}  // namespace lockstep::kube
