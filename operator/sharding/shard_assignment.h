#pragma once
// What a replica of the operator does about the table of shards, as it reads it: without the network. Pure.
//
// Each replica takes shards for itself only, up to its share, and frees what it holds beyond that. All compute
// the same shares from the same table: 16 shards divided by the replicas, even within one.

#include <map>
#include <string>

#include "operator/sharding/shard_table.h"

namespace lockstep::sharding {

// The replicas that died are those that this process has seen unchanged for too long, on its own steady clock:
// never by another host's timestamps. This elects; it does not fence: a paused replica may still write, which
// is why it must end once it could not renew.
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

// The table without those that are dead; a replica never counts itself as dead. Empty once a sole leader is.
[[nodiscard]] ShardTable WithoutTheDead(const ShardTable& table, const ReplicaObserver& observer,
                                        const std::string& identity);

// `identity` must be a replica of the table in what follows.

// Gives it what earlier processes of its pod held: they have ended, for the kubelet starts a container again only
// after its end. So the restart of an operator moves no shards, and nobody waits for the expiry.
void Inherit(const std::string& identity, ShardTable& table);
// What it holds beyond its share.
[[nodiscard]] ShardSet SurplusOf(const ShardTable& table, const std::string& identity);
// Takes free shards up to its share.
void TakeFree(const std::string& identity, ShardTable& table);
void Free(const ShardSet& shards, ShardTable& table);

}  // namespace lockstep::sharding
