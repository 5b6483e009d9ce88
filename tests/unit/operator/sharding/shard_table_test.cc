#include "operator/sharding/shard_table.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::sharding {
namespace {

using namespace std::chrono_literals;

const WallTime kWall{1000s};

ShardTable TwoReplicas() {
  ShardTable table{.replicas = {{"a_1", {"t1", 15, "10.0.0.1:29400", "authority\n"}},
                                {"b_2", {"t2", 15, "[fd00::2]:29400"}}}};
  table.holders.fill("a_1");
  table.holders.at(3) = "b_2";
  table.holders.at(4).clear();
  return table;
}

Json LeaseOf(const ShardTable& table) {
  Json lease = {{"metadata", {{"name", "leader"}, {"resourceVersion", "7"}}}};
  PutTable(table, {}, kWall, lease);
  return lease;
}

TEST(ShardTable, IsReadAsItWasWritten) {
  const Json lease = LeaseOf(TwoReplicas());
  EXPECT_EQ(TableFromLease(lease), TwoReplicas());
  EXPECT_EQ(StringAt(lease, {"spec", "holderIdentity"}), "a_1,b_2");
  EXPECT_EQ(StringAt(lease, {"metadata", "resourceVersion"}), "7");
}

// The API server would reject the Lease, and the replicas would end.
TEST(ShardTable, LeavesOutAuthoritiesThatDoNotFitIntoAnAnnotation) {
  ShardTable table = TwoReplicas();
  table.replicas.at("a_1").authorities = std::string(256 * 1024, 'a');
  EXPECT_EQ(TableFromLease(LeaseOf(table)).replicas.at("a_1"), (Replica{"t1", 15, "10.0.0.1:29400"}));
}

TEST(ShardTable, IsEmptyWhenTheLeaseHasNoHolder) {
  EXPECT_EQ(TableFromLease(Json::object()), ShardTable{});
  const Json left = LeaseOf({});
  EXPECT_EQ(StringAt(left, {"spec", "holderIdentity"}), "");
  EXPECT_EQ(IntAt(left, {"spec", "leaseDurationSeconds"}), 1) << "an older operator may lead at once";
  EXPECT_EQ(TableFromLease(left), ShardTable{});
}

// An older operator writes the spec and keeps the annotations of earlier replicas.
TEST(ShardTable, AHolderThatIsNotItsReplicasIsASoleLeader) {
  Json lease = LeaseOf(TwoReplicas());
  lease["spec"]["holderIdentity"] = "old_1";
  lease["spec"]["renewTime"] = "t9";
  lease["spec"]["leaseDurationSeconds"] = 20;
  const ShardTable table = TableFromLease(lease);
  EXPECT_TRUE(table.is_sole_leader);
  EXPECT_EQ(table.replicas, (std::map<std::string, Replica>{{"old_1", {"t9", 20, ""}}}));
  EXPECT_TRUE(ShardsOf(table, "old_1").all());
  lease["metadata"]["annotations"]["lockstep.dev/shards"] = "rubbish";
  EXPECT_TRUE(TableFromLease(lease).is_sole_leader);
}

TEST(ShardTable, CountsEachChangeOfTheReplicas) {
  Json lease = LeaseOf(TwoReplicas());
  EXPECT_EQ(IntAt(lease, {"spec", "leaseTransitions"}), 0);
  PutTable(TwoReplicas(), {}, kWall + 1s, lease);
  EXPECT_EQ(IntAt(lease, {"spec", "leaseTransitions"}), 0) << "a renewal";
  ShardTable one = TwoReplicas();
  one.replicas.erase("b_2");
  PutTable(one, {}, kWall + 2s, lease);
  EXPECT_EQ(IntAt(lease, {"spec", "leaseTransitions"}), 1);
}

// A job keeps its shard in every version.
TEST(ShardOf, IsTheSameInEveryVersion) {
  EXPECT_EQ(ShardOf("0f0b8a52-6a2c-4d54-9d27-0c2f4f3d7a11"), 11U);
  EXPECT_EQ(ShardOf(""), 1U);
}

TEST(ShardOf, SpreadsJobsOverAllShards) {
  std::array<int, kShards> jobs{};
  constexpr int kJobs = 16'000;
  for (int i = 0; i < kJobs; ++i)
    ++jobs.at(ShardOf("7d1c3f3e-51c2-4b0e-9d27-" + std::to_string(100'000 + i)));
  for (const int count : jobs) EXPECT_NEAR(count, 1000, 200);
}

}  // namespace
}  // namespace lockstep::sharding
