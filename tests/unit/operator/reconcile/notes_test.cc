#include "operator/reconcile/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using ::testing::Contains;
using testing::EventsOf;
using ::testing::HasSubstr;
using testing::JobWorld;

TEST(Notes, TellsTheLastLinesOfADeadRankWithinAnEventsLimits) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "line " + std::to_string(i) + " of an error\n";
  world.observed().rendezvous.changes = {
      {.round = 2,
       .cause = "Infrastructure",
       .reason = "job-worker-1: rank process 0 was ended by signal 11 " + std::string(2000, 'x'),
       .departures = {{.pod = "job-worker-1", .last_lines = lines}}}};
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(EventsOf(plan), Contains("RoundBroken"));
  const std::string& note = plan.events.front().note;
  EXPECT_THAT(note, ::testing::StartsWith("round 2: job-worker-1: rank process 0 was ended by signal 11"));
  EXPECT_THAT(note, HasSubstr("; last lines of job-worker-1:\nline "));
  EXPECT_THAT(note, ::testing::EndsWith("line 99 of an error\n"));
  EXPECT_LE(note.size(), 1024U);
}

TEST(Notes, SaysWhyThereIsNoProfile) {
  struct Case {
    const char* asked;
    bool has_training;
    bool has_checkpoint;
    const char* words;
  };
  const Case cases[] = {
      {"0", true, true,
       "lockstep.dev/profile: must begin with the number of steps to record, 1 to 100, as in"},
      {"101", true, true, "1 to 100"},
      {"soon", true, true, R"(not "soon")"},
      {"5", false, true, "lockstep.dev/profile: only a job with spec.training"},
      {"5", true, false, "lockstep.dev/profile: needs spec.checkpoint"},
  };
  for (const Case& entry : cases) {
    JobWorld world;
    api::TrainingJob& job = world.observed().job;
    world.Running(0).Running(1).Round(3, {0, 1}, 9);
    job.spec.training.reset();
    if (entry.has_training) job.spec.training.emplace();
    job.spec.checkpoint = entry.has_checkpoint
                              ? std::optional(api::CheckpointSpec{.uri = "file:///checkpoints"})
                              : std::nullopt;
    job.metadata.annotations["lockstep.dev/profile"] = entry.asked;
    const Plan plan = MakePlan(world.observed());
    const auto told = std::find_if(plan.events.begin(), plan.events.end(), [](const kube::EventNote& note) {
      return note.reason == "ProfileRefused";
    });
    ASSERT_NE(told, plan.events.end()) << entry.words;
    EXPECT_TRUE(told->warning);
    EXPECT_THAT(told->note, HasSubstr(entry.words));
    ASSERT_TRUE(plan.rendezvous.has_value());
    EXPECT_EQ(plan.rendezvous->profile_request, "");
  }
}

}  // namespace
}  // namespace lockstep::reconcile
