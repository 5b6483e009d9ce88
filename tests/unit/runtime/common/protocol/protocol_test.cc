#include <gtest/gtest.h>

#include "runtime/common/protocol/fields.h"
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

  const auto over = DecodeToRank(Encode(ToRank(RoundOver{.round = 4, .mode = LeaveMode::kYield})));
  ASSERT_TRUE(over.ok());
  EXPECT_EQ(std::get<RoundOver>(*over).mode, LeaveMode::kYield);
}

TEST(RankControl, RefusesUnknownTypesAndWrongFields) {
  EXPECT_FALSE(DecodeToRank(R"({"type":"ready"})").ok());  // a message of the other direction
  EXPECT_FALSE(DecodeFromRank(R"({"type":"ready","step":"seven"})").ok());
  EXPECT_FALSE(DecodeFromRank("ready").ok());
}

TEST(Rendezvous, NestedListsSurviveTheWire) {
  JoinAnswer answer{.state = JoinState::kAssigned, .round = 9, .world = 3};
  answer.peers = {{.pod = "a", .slot = 0, .address = "10.0.0.1", .first_rank = 0, .nproc = 2}, {.pod = "b"}};
  const auto back = MessageFromJson<JoinAnswer>(MessageToJson(answer));
  ASSERT_TRUE(back.ok()) << back.error().ToString();
  EXPECT_EQ(back->state, JoinState::kAssigned);
  ASSERT_EQ(back->peers.size(), 2U);
  EXPECT_EQ(back->peers[0].nproc, 2);
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
