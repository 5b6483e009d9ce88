#pragma once
// How a replica of the operator changes the table of shards. Pure, without the network.
//
// Each replica takes shards only for itself, up to its share, and frees what exceeds its share. All replicas
// compute the same shares from the same table: 16 shards divided by the number of replicas, with a difference
// of at most one.

#include <map>
#include <string>

#include "operator/sharding/shard_table.h"

namespace lockstep::sharding {

// A replica counts as dead if this process has seen its entry unchanged for too long by its own steady clock;
// timestamps of other hosts are not used. This elects but does not fence: a paused replica may still write.
// That is why a replica must exit once it could not renew.
class ReplicaObserver {
 public:
  void Observe(const ShardTable& table, SteadyTime now);
  [[nodiscard]] bool IsDead(const std::string& identity) const;

 private:
  struct Observed {
    Replica replica;
    SteadyTime since;
  };
  std::map<std::string, Observed> observed_;
  SteadyTime now_{};
};

// The table without dead replicas; a replica never counts itself as dead. Empty if the sole leader is dead.
[[nodiscard]] ShardTable WithoutTheDead(const ShardTable& table, const ReplicaObserver& observer,
                                        const std::string& identity);

// In the functions below `identity` must be a replica of the table.

// Assigns it the shards of earlier processes of its pod. These have ended, because the kubelet restarts a
// container only after its end. So a restarted operator keeps its shards without waiting for an expiry.
void Inherit(const std::string& identity, ShardTable& table);
// The shards that it holds beyond its share.
[[nodiscard]] ShardSet SurplusOf(const ShardTable& table, const std::string& identity);
// Takes free shards up to its share.
void TakeFree(const std::string& identity, ShardTable& table);
void Free(const ShardSet& shards, ShardTable& table);

}  // namespace lockstep::sharding
