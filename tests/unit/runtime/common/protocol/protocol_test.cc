#include <gtest/gtest.h>

#include "runtime/common/base/fields.h"
#include "runtime/common/protocol/damaged_checkpoints.h"
#include "runtime/common/protocol/last_report.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::protocol {
namespace {

TEST(RankControl, EveryMessageSurvivesTheWire) {
  Progress progress{.round = 3, .step = 7, .loss = 0.5, .phase_seconds = {{"forward", 1.5}}};
  const auto decoded = DecodeFromRank(Encode(FromRank(progress)));
  ASSERT_TRUE(decoded.ok()) << decoded.error().ToString();
  const auto& back = std::get<Progress>(*decoded);
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.phase_seconds, progress.phase_seconds);

  const CheckpointDamaged damaged{120, "s3://b/p/step-120/shard-0: is missing"};
  EXPECT_EQ(std::get<CheckpointDamaged>(*DecodeFromRank(Encode(FromRank(damaged)))), damaged);

  const auto over = DecodeToRank(Encode(ToRank(RoundOver{.round = 4, .mode = LeaveMode::kYield})));
  ASSERT_TRUE(over.ok());
  EXPECT_EQ(std::get<RoundOver>(*over).mode, LeaveMode::kYield);

  EXPECT_TRUE(std::holds_alternative<Ping>(*DecodeToRank(Encode(ToRank(Ping{})))));
  EXPECT_TRUE(
      std::get<Pong>(*DecodeFromRank(Encode(FromRank(Pong{.waits_for_peers = true})))).waits_for_peers);
}

TEST(RankControl, RefusesUnknownTypesAndWrongFields) {
  EXPECT_FALSE(DecodeToRank(R"({"type":"ready"})").ok());  // a message of the other direction
  EXPECT_FALSE(DecodeFromRank(R"({"type":"ready","step":"seven"})").ok());
  EXPECT_FALSE(DecodeFromRank("ready").ok());
}

TEST(RankControl, APhaseThatIsNotKnownIsOfAProgram) {
  const auto phase_of = [](const std::string& word) {
    return std::get<PhaseChanged>(DecodeFromRank(R"({"type": "phase", "phase": ")" + word + R"("})").value())
        .phase;
  };
  EXPECT_EQ(phase_of("evaluate"), RankPhase::kEvaluate);
  EXPECT_EQ(phase_of("of a later version"), RankPhase::kProgram) << "which is not judged";
}

TEST(Rendezvous, NestedListsSurviveTheWire) {
  Heartbeat beat{.round = 9, .world = 3, .nproc = 2};
  beat.ranks = {{.rank = 1, .step = 40}, {.rank = 2}};
  beat.damaged_checkpoints = {{120, "is missing"}, {100, "cut short"}};
  const auto back = MessageFromJson<Heartbeat>(MessageToJson(beat));
  ASSERT_TRUE(back.ok()) << back.error().ToString();
  EXPECT_EQ(back->round, 9);
  ASSERT_EQ(back->ranks.size(), 2U);
  EXPECT_EQ(back->ranks[0].step, 40);
  EXPECT_EQ(back->damaged_checkpoints, beat.damaged_checkpoints);
}

TEST(Rendezvous, CausesTravelAsWords) {
  const LeaveRequest leave{.failure = {.cause = FailureCause::kHang}};
  Json json = MessageToJson(leave);
  EXPECT_EQ(json["failure"]["cause"], "Hang");
  EXPECT_EQ(MessageFromJson<LeaveRequest>(json)->failure.cause, FailureCause::kHang);
  json["failure"]["cause"] = "Meteorite";  // of a newer member
  EXPECT_EQ(MessageFromJson<LeaveRequest>(json)->failure.cause, FailureCause::kInfrastructure);
}

// An operator and a worker of another version may have written and may read them.
TEST(WorkerConfig, WordsOfTheManifestTravelAsNumbers) {
  const Json json = WorkerConfigToJson({.health = {.on_hang = HealthAction::kReplacePod,
                                                   .on_straggler = HealthAction::kRestart,
                                                   .instance_metadata = InstanceMetadata::kGcp}});
  EXPECT_EQ(json["health"]["onHang"], 2);
  EXPECT_EQ(json["health"]["onStraggler"], 1);
  EXPECT_EQ(json["health"]["instanceMetadata"], 2);
}

TEST(LastReport, FitsIntoATerminationMessageAndKeepsTheNewestRepairs) {
  Heartbeat beat{.member = {.pod = "job-worker-0", .pod_uid = "p"}, .progress = {.round = 3, .step = 480}};
  beat.ranks.resize(8);
  for (int64_t round = 1; round <= 10; ++round) {
    beat.repairs.push_back({.formation = round,
                            .reason = std::string(900, 'r'),
                            .failure = {.ranks = {1}, .last_lines = std::string(4000, 'l')},
                            .seconds = 2});
  }
  for (int64_t step = 1; step <= 8; ++step) beat.damaged_checkpoints.push_back({step, std::string(500, 'd')});
  const std::string text = EncodeLastReport(beat);
  EXPECT_LE(text.size(), kMaxLastReport);
  const auto back = DecodeLastReport(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->progress.step, 480);
  EXPECT_EQ(back->member.pod_uid, "p");
  ASSERT_GE(back->repairs.size(), 5U);
  EXPECT_EQ(back->repairs.back().formation, 10);
  EXPECT_EQ(back->repairs.back().failure.ranks, std::vector<int64_t>{1});
}

TEST(LastReport, IsNotFoundInOtherTexts) {
  for (const char* text :
       {"", "done", "{", "{\"accuracy\": ", "[1]", R"({"round": -7})", R"({"progress": 3})"})
    EXPECT_FALSE(DecodeLastReport(text).has_value()) << text;
}

TEST(DamagedCheckpoints, AreTheNewestFewEachOnceAndNoneComesBackThatFellOut) {
  std::vector<CheckpointDamaged> kept;
  EXPECT_TRUE(KeepNewest(kept, CheckpointDamaged{20, "cut short"}));
  EXPECT_FALSE(KeepNewest(kept, CheckpointDamaged{20, "cut short"}));
  EXPECT_TRUE(KeepNewest(kept, CheckpointDamaged{20, "is missing"})) << "it was stored and damaged again";
  EXPECT_TRUE(KeepNewest(kept, CheckpointDamaged{10, "cut short"}));
  EXPECT_EQ(kept, (std::vector<CheckpointDamaged>{{20, "is missing"}, {20, "cut short"}, {10, "cut short"}}));
  for (int64_t step = 30; kept.back().step < 30; step += 10)
    EXPECT_TRUE(KeepNewest(kept, CheckpointDamaged{step, "cut short"}));
  EXPECT_EQ(kept.size(), kKeptDamages);
  EXPECT_FALSE(KeepNewest(kept, CheckpointDamaged{20, "cut short"}));
}

TEST(DamagedCheckpoints, HaveShortReasons) {
  std::vector<CheckpointDamaged> kept;
  EXPECT_TRUE(KeepNewest(kept, CheckpointDamaged{20, std::string(5000, 'x')}));
  EXPECT_EQ(kept[0].reason.size(), kMaxDamageReason);
  EXPECT_FALSE(KeepNewest(kept, CheckpointDamaged{20, std::string(5000, 'x')}));
}

TEST(WorkerConfig, KeepsTheManifestsSections) {
  WorkerConfig config;
  config.job = {"ns", "job", "uid"};
  config.training = Json{{"seed", 3}};
  const auto back = WorkerConfigFromJson(WorkerConfigToJson(config));
  ASSERT_TRUE(back.ok()) << back.error().ToString();
  EXPECT_EQ(back->job, config.job);
  EXPECT_EQ(back->training, config.training);
}

TEST(WorkerConfig, RefusesAnotherVersionWithAdvice) {
  Json json = WorkerConfigToJson({});
  json["version"] = 2;
  EXPECT_EQ(WorkerConfigFromJson(json).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lockstep::protocol
