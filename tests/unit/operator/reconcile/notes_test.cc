#include "operator/reconcile/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::reconcile
