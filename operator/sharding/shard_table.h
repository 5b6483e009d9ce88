#pragma once
// Which replica of the operator holds which shard of the jobs: one table, in the annotations of one Lease.
// Pure.
//
// All replicas read and write the same object with its resourceVersion, so that no shard has two holders. The
// Lease's holderIdentity lists the replicas. An operator of a version without shards holds the Lease alone;
// it sees a Lease with a table as held by another, and waits.

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

// Must never change: replicas of two versions must agree on a job's shard.
inline constexpr std::size_t kShards = 16;
using ShardSet = std::bitset<kShards>;

[[nodiscard]] std::size_t ShardOf(std::string_view job_uid);

struct Replica {
  std::string renewed;            // changes with each renewal
  int64_t duration_seconds = 15;  // after this long without a renewal the replica counts as dead
  std::string address;            // host:port of its rendezvous server; empty: unknown
  // The authorities of the certificate that it serves, PEM; empty: unknown, too large, or none.
  std::string authorities;

  friend bool operator==(const Replica&, const Replica&) = default;
};

struct ShardTable {
  std::map<std::string, Replica> replicas;   // by identity
  std::array<std::string, kShards> holders;  // identities of replicas; empty: none
  // An operator of a version without shards holds all of them until its lease ends.
  bool is_sole_leader = false;

  friend bool operator==(const ShardTable&, const ShardTable&) = default;
};

// The pod of a replica. An identity is the pod's name with a suffix for each process, such as "name_1f2e".
[[nodiscard]] std::string PodOf(const std::string& identity);

[[nodiscard]] ShardSet ShardsOf(const ShardTable& table, const std::string& identity);

[[nodiscard]] ShardTable TableFromLease(const Json& lease);
// Writes the table into the Lease and leaves the rest of the object unchanged.
void PutTable(const ShardTable& table, const kube::LeaseTimings& timings, WallTime wall, Json& lease);

}  // namespace lockstep::sharding
