#include "operator/sharding/shard_assignment.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace lockstep::sharding {
namespace {

using namespace std::chrono_literals;

const SteadyTime kStart{1h};

// The loop's steps without the network: every replica acts on the newest table.
class Cluster {
 public:
  void Look(const std::string& me) {
    if (table_.replicas.contains(me)) table_.replicas[me].renewed = std::to_string(++renewals_);
    observers_[me].Observe(table_, now_);
    ShardTable next = WithoutTheDead(table_, observers_[me], me);
    next.replicas.try_emplace(me);
    Free(SurplusOf(next, me), next);
    TakeFree(me, next);
    table_ = next;
  }
  void LookAll(const std::vector<std::string>& alive, SteadyTime::duration step = 500ms) {
    now_ += step;
    for (const std::string& replica : alive) Look(replica);
  }
  void Leave(const std::string& replica) {
    Free(ShardsOf(table_, replica), table_);
    table_.replicas.erase(replica);
  }
  [[nodiscard]] std::vector<std::size_t> Counts(const std::vector<std::string>& replicas) const {
    std::vector<std::size_t> counts;
    for (const std::string& replica : replicas) counts.push_back(ShardsOf(table_, replica).count());
    return counts;
  }
  [[nodiscard]] const ShardTable& table() const { return table_; }

 private:
  ShardTable table_;
  std::map<std::string, ReplicaObserver> observers_;
  SteadyTime now_ = kStart;
  int renewals_ = 0;
};

using Counts = std::vector<std::size_t>;

TEST(ShardAssignment, TheFirstReplicaTakesAllAndOthersGetTheirShares) {
  Cluster cluster;
  cluster.LookAll({"b"});
  EXPECT_EQ(cluster.Counts({"b"}), Counts{16});
  cluster.LookAll({"b", "c"});
  cluster.LookAll({"b", "c"});
  EXPECT_EQ(cluster.Counts({"b", "c"}), (Counts{8, 8}));
  cluster.LookAll({"a", "b", "c"});
  cluster.LookAll({"a", "b", "c"});
  EXPECT_EQ(cluster.Counts({"a", "b", "c"}), (Counts{6, 5, 5}));
}

TEST(ShardAssignment, NothingMovesOnceTheSharesAreEven) {
  Cluster cluster;
  for (int i = 0; i < 3; ++i) cluster.LookAll({"a", "b", "c"});
  const auto holders = cluster.table().holders;
  for (int i = 0; i < 10; ++i) cluster.LookAll({"c", "a", "b"});
  EXPECT_EQ(cluster.table().holders, holders);
}

TEST(ShardAssignment, TheLossOfAReplicaMovesItsShardsOnly) {
  Cluster cluster;
  for (int i = 0; i < 3; ++i) cluster.LookAll({"a", "b", "c"});
  const auto before = cluster.table().holders;
  for (int i = 0; i < 30; ++i) cluster.LookAll({"a", "b"});
  EXPECT_EQ(cluster.table().holders, before) << "15 s are not over";
  for (int i = 0; i < 2; ++i) cluster.LookAll({"a", "b"});
  EXPECT_EQ(cluster.Counts({"a", "b", "c"}), (Counts{8, 8, 0}));
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    if (before.at(shard) != "c") {
      EXPECT_EQ(cluster.table().holders.at(shard), before.at(shard));
    }
  }
}

TEST(ShardAssignment, AReplicaThatRenewsSlowlyKeepsItsShards) {
  Cluster cluster;
  for (int i = 0; i < 3; ++i) cluster.LookAll({"a", "b"});
  const auto before = cluster.table().holders;
  for (int i = 0; i < 10; ++i) {
    cluster.LookAll({"a"}, 14s);
    cluster.Look("b");
  }
  EXPECT_EQ(cluster.table().holders, before);
}

TEST(ShardAssignment, WhatAReplicaThatLeavesHeldIsTakenWithTheNextLook) {
  Cluster cluster;
  for (int i = 0; i < 3; ++i) cluster.LookAll({"a", "b", "c"});
  cluster.Leave("a");
  cluster.LookAll({"b", "c"});
  EXPECT_EQ(cluster.Counts({"b", "c"}), (Counts{8, 8}));
}

TEST(ShardAssignment, TheNextProcessOfAPodHasWhatTheOneBeforeItHeld) {
  Cluster cluster;
  for (int i = 0; i < 3; ++i) cluster.LookAll({"a_1", "a-b_1"});
  ShardTable table = cluster.table();
  table.replicas.try_emplace("a_2");
  Inherit("a_2", table);
  EXPECT_EQ(ShardsOf(table, "a_2"), ShardsOf(cluster.table(), "a_1"));
  EXPECT_EQ(ShardsOf(table, "a-b_1"), ShardsOf(cluster.table(), "a-b_1"));
  EXPECT_FALSE(table.replicas.contains("a_1"));
  EXPECT_EQ(SurplusOf(table, "a_2"), ShardSet());
}

TEST(ShardAssignment, MoreReplicasThanShardsLeaveSomeWithoutAny) {
  Cluster cluster;
  std::vector<std::string> replicas;
  for (char c = 'a'; c < 'a' + 20; ++c) replicas.emplace_back(1, c);
  for (int i = 0; i < 25; ++i) cluster.LookAll(replicas);
  const Counts counts = cluster.Counts(replicas);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 1U), 16);
}

TEST(ShardAssignment, ASoleLeaderIsWaitedForUntilItsLeaseEnds) {
  ShardTable table{.replicas = {{"old", {"t1", 15, ""}}}, .is_sole_leader = true};
  table.holders.fill("old");
  ReplicaObserver observer;
  observer.Observe(table, kStart);
  observer.Observe(table, kStart + 15s);
  EXPECT_TRUE(WithoutTheDead(table, observer, "me").is_sole_leader);
  table.replicas["old"].renewed = "t2";
  observer.Observe(table, kStart + 16s);
  observer.Observe(table, kStart + 31s);
  EXPECT_TRUE(WithoutTheDead(table, observer, "me").is_sole_leader);
  observer.Observe(table, kStart + 31s + 1ms);
  EXPECT_EQ(WithoutTheDead(table, observer, "me"), ShardTable{});
}

// In any order of joins, reads, leaves and deaths, a shard of a living replica moves only by that replica's
// own step. Once the others have observed for long enough, all shards are held, with a difference of at most
// one.
TEST(ShardAssignment, EndsEvenWhateverHappens) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
    Cluster cluster;
    const int events = *rc::gen::inRange(1, 60);
    for (int i = 0; i < events; ++i) {
      const std::string replica = *rc::gen::elementOf(names);
      const auto before = cluster.table().holders;
      if (*rc::gen::inRange(0, 5) == 0) {
        cluster.Leave(replica);
      } else {
        cluster.Look(replica);
      }
      for (std::size_t shard = 0; shard < kShards; ++shard) {
        const std::string& holder = cluster.table().holders.at(shard);
        RC_ASSERT(before.at(shard) == holder || before.at(shard).empty() || before.at(shard) == replica);
        RC_ASSERT(holder.empty() || cluster.table().replicas.contains(holder));
      }
    }
    const int last = *rc::gen::inRange(1, 6);
    const std::vector<std::string> alive(names.begin(), names.begin() + last);
    for (int i = 0; i < 40; ++i) cluster.LookAll(alive);
    const Counts counts = cluster.Counts(alive);
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    RC_ASSERT(*most - *least <= 1U);
    std::size_t held = 0;
    for (const std::size_t count : counts) held += count;
    RC_ASSERT(held == kShards);
  }));
}

}  // namespace
}  // namespace lockstep::sharding
