#include "operator/reconcile/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::EventsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobWorld;

std::string NoteOfADeadRank(const std::string& last_lines) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  world.observed().rendezvous.changes = {
      {.round = 2,
       .cause = protocol::FailureCause::kInfrastructure,
       .reason = "job-worker-1: rank process 0 was ended by signal 11 " + std::string(2000, 'x'),
       .departures = {{.pod = "job-worker-1", .last_lines = last_lines}}}};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(EventsOf(plan), Contains("RoundBroken"));
  return plan.events.front().note;
}

TEST(Notes, IncludeTheLastLinesOfADeadRankWithinAnEventsLimits) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "line " + std::to_string(i) + " of an error\n";
  const std::string note = NoteOfADeadRank(lines);
  EXPECT_THAT(note, ::testing::StartsWith("round 2: job-worker-1: rank process 0 was ended by signal 11"));
  EXPECT_THAT(note, HasSubstr("; last lines of job-worker-1:\nline "));
  EXPECT_THAT(note, ::testing::EndsWith("line 99 of an error\n"));
  EXPECT_LE(note.size(), 1024U);
}

// Such as a warning of DistributedDataParallel, or a progress bar. The API server refuses a longer text, and with it the whole status.
TEST(Notes, IncludeTheEndOfALastLineThatIsTooLong) {
  const std::vector<std::string> letters = {"x", "█"};
  for (const std::string& letter : letters) {
    std::string line = "beginning ";
    for (int i = 0; i < 1000; ++i) line += letter;
    const std::vector<std::string> texts = {line + " end", "the line before\n" + line + " end",
                                            line + " end\n"};
    for (const std::string& lines : texts) {
      const std::string note = NoteOfADeadRank(lines);
      EXPECT_LE(note.size(), 1024U);
      EXPECT_THAT(note, HasSubstr("; last lines of job-worker-1:\n…" + letter)) << "no part of a character";
      EXPECT_THAT(note, HasSubstr(letter + " end"));
    }
  }
}

std::vector<std::string> DamagesReportedBy(const Plan& plan) {
  std::vector<std::string> notes;
  for (const kube::EventNote& event : plan.events) {
    if (event.reason == "CheckpointDamaged" && event.warning) notes.push_back(event.note);
  }
  return notes;
}

TEST(Notes, ReportEachDamagedCheckpointOnce) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  world.observed().job.spec.checkpoint = api::CheckpointSpec{.uri = "s3://bucket/job"};
  auto& damaged = world.observed().rendezvous.damaged_checkpoints;
  EXPECT_THAT(DamagesReportedBy(MakePlan(world.observed())), IsEmpty());

  damaged = {{120, "s3://bucket/job/step-000000000120/shard-0: is missing"}};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(
      DamagesReportedBy(plan),
      ElementsAre("the checkpoint of step 120 is damaged: s3://bucket/job/step-000000000120/shard-0: is "
                  "missing; training continues from the newest valid one before it, or from the beginning if "
                  "there is none. `lockstep checkpoint verify s3://bucket/job` lists all damage"));
  world.observed().job.status = plan.status;
  world.observed().now += std::chrono::seconds(1);
  EXPECT_THAT(DamagesReportedBy(MakePlan(world.observed())), IsEmpty()) << "the next heartbeat says it again";

  world.observed().rendezvous = {};
  EXPECT_THAT(DamagesReportedBy(MakePlan(world.observed())), IsEmpty()) << "a new operator knows nothing yet";
  world.Round(3, {0, 1}, 9);
  damaged = {{120, "s3://bucket/job/step-000000000120/shard-0: is missing"}, {100, "cut short"}};
  EXPECT_THAT(DamagesReportedBy(MakePlan(world.observed())),
              ElementsAre(HasSubstr("step 100 is damaged: cut short")));
}

TEST(Notes, ReportADamagedCheckpointWithinAnEventsLimits) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  world.observed().job.spec.checkpoint = api::CheckpointSpec{.uri = "s3://bucket/" + std::string(200, 'p')};
  world.observed().rendezvous.damaged_checkpoints = {{120, std::string(5000, 'x')}};
  const auto notes = DamagesReportedBy(MakePlan(world.observed()));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_LE(notes[0].size(), 1024U);
  EXPECT_THAT(notes[0], ::testing::EndsWith("lists all damage"));
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
    const auto reported =
        std::find_if(plan.events.begin(), plan.events.end(),
                     [](const kube::EventNote& note) { return note.reason == "ProfileRefused"; });
    ASSERT_NE(reported, plan.events.end()) << entry.words;
    EXPECT_TRUE(reported->warning);
    EXPECT_THAT(reported->note, HasSubstr(entry.words));
    ASSERT_TRUE(plan.rendezvous.has_value());
    EXPECT_EQ(plan.rendezvous->profile_request, "");
  }
}

}  // namespace
}  // namespace lockstep::reconcile
