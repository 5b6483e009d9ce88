#include "operator/sharding/shard_assignment.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace lockstep::sharding {
namespace {

std::size_t ShareOf(const ShardTable& table, const std::string& identity) {
  const std::size_t replicas = table.replicas.size();
  const auto rank =
      static_cast<std::size_t>(std::distance(table.replicas.begin(), table.replicas.find(identity)));
  return kShards / replicas + (rank < kShards % replicas ? 1 : 0);
}

}  // namespace

void ReplicaObserver::Observe(const ShardTable& table, SteadyTime now) {
  now_ = now;
  std::erase_if(observed_, [&](const auto& entry) { return !table.replicas.contains(entry.first); });
  for (const auto& [identity, replica] : table.replicas) {
    const auto [entry, is_new] = observed_.try_emplace(identity, Observed{replica, now});
    if (!is_new && entry->second.replica != replica) entry->second = {replica, now};
  }
}

bool ReplicaObserver::IsDead(const std::string& identity) const {
  const auto found = observed_.find(identity);
  return found != observed_.end() &&
         now_ - found->second.since > std::chrono::seconds(found->second.replica.duration_seconds);
}

ShardTable WithoutTheDead(const ShardTable& table, const ReplicaObserver& observer,
                          const std::string& identity) {
  ShardTable next = table;
  std::erase_if(next.replicas,
                [&](const auto& entry) { return entry.first != identity && observer.IsDead(entry.first); });
  for (std::string& holder : next.holders) {
    if (!next.replicas.contains(holder)) holder.clear();
  }
  if (next.replicas.empty()) next.is_sole_leader = false;
  return next;
}

void Inherit(const std::string& identity, ShardTable& table) {
  std::erase_if(table.replicas, [&](const auto& entry) {
    return entry.first != identity && PodOf(entry.first) == PodOf(identity);
  });
  for (std::string& holder : table.holders) {
    if (!holder.empty() && !table.replicas.contains(holder)) holder = identity;
  }
}

ShardSet SurplusOf(const ShardTable& table, const std::string& identity) {
  ShardSet surplus = ShardsOf(table, identity);
  std::size_t kept = 0;
  for (std::size_t shard = 0; shard < kShards && kept < ShareOf(table, identity); ++shard) {
    if (!surplus[shard]) continue;
    surplus.reset(shard);
    ++kept;
  }
  return surplus;
}

void TakeFree(const std::string& identity, ShardTable& table) {
  std::size_t held = ShardsOf(table, identity).count();
  for (std::string& holder : table.holders) {
    if (held >= ShareOf(table, identity)) return;
    if (!holder.empty()) continue;
    holder = identity;
    ++held;
  }
}

void Free(const ShardSet& shards, ShardTable& table) {
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    if (shards[shard]) table.holders.at(shard).clear();
  }
}

}  // namespace lockstep::sharding
