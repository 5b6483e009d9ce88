#include "operator/sharding/shard_gate.h"

#include <gtest/gtest.h>

namespace lockstep::sharding {
namespace {

const std::string kJob = "job-uid";

ShardSet ShardOfJob() { return ShardSet().set(ShardOf(kJob)); }

TEST(ShardGate, LetsWorkInOnOpenShardsOnly) {
  ShardGate gate;
  EXPECT_FALSE(gate.Enter(kJob));
  EXPECT_FALSE(gate.IsOpenTo(kJob));
  EXPECT_EQ(gate.Open(ShardOfJob()), ShardOfJob());
  EXPECT_TRUE(gate.Enter(kJob));
  EXPECT_TRUE(gate.IsOpenTo(kJob));
  gate.Open(~ShardOfJob());
  EXPECT_FALSE(gate.Enter(kJob));
}

TEST(ShardGate, AClosedShardIsWorkedOnUntilTheLastWorkEnds) {
  ShardGate gate;
  gate.Open(ShardOfJob());
  auto first = gate.Enter(kJob);
  auto second = gate.Enter(kJob);
  EXPECT_EQ(gate.Open({}), ShardOfJob());
  first.reset();
  EXPECT_EQ(gate.Open({}), ShardOfJob());
  second.reset();
  EXPECT_EQ(gate.Open({}), ShardSet());
}

}  // namespace
}  // namespace lockstep::sharding
