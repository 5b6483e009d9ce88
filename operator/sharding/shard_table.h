#pragma once
// Which replica of the operator holds which shard of the jobs: one table, in the annotations of one Lease. Pure.
//
// All replicas read and write the same object with its resourceVersion, so that no shard has two holders. The
// Lease's holderIdentity lists the replicas. An operator older than shards holds the Lease alone; it sees the
// table's Lease as held by another, and waits.

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "operator/kube/lease.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/json.h"

namespace lockstep::sharding {

// Never changes: replicas of two versions must agree on a job's shard.
inline constexpr std::size_t kShards = 16;
using ShardSet = std::bitset<kShards>;

[[nodiscard]] std::size_t ShardOf(std::string_view job_uid);

struct Replica {
  std::string renewed;            // another text with each renewal
  int64_t duration_seconds = 15;  // without a renewal for longer it counts as dead
  std::string address;            // host:port of its rendezvous server; empty: not known

  friend bool operator==(const Replica&, const Replica&) = default;
};

struct ShardTable {
  std::map<std::string, Replica> replicas;   // by identity
  std::array<std::string, kShards> holders;  // identities of replicas; empty: nobody
  // One operator that is older than shards, and that holds them all until its lease ends.
  bool is_sole_leader = false;

  friend bool operator==(const ShardTable&, const ShardTable&) = default;
};

// The pod of a replica: its identity is the pod's name with a suffix for each process, "name_1f2e".
[[nodiscard]] std::string PodOf(const std::string& identity);

[[nodiscard]] ShardSet ShardsOf(const ShardTable& table, const std::string& identity);

[[nodiscard]] ShardTable TableFromLease(const Json& lease);
// Writes the table into the Lease; the rest of the object stays.
void PutTable(const ShardTable& table, const kube::LeaseTimings& timings, WallTime wall, Json& lease);

}  // namespace lockstep::sharding
