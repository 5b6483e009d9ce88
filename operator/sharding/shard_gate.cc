#include "operator/sharding/shard_gate.h"

namespace lockstep::sharding {

ShardSet ShardGate::Open(const ShardSet& shards) {
  const MutexLock lock(mutex_);
  open_ = shards;
  ShardSet worked_on = shards;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    if (at_work_.at(shard) > 0) worked_on.set(shard);
  }
  return worked_on;
}

ShardSet ShardGate::open() const {
  const MutexLock lock(mutex_);
  return open_;
}

std::optional<ShardGate::Pass> ShardGate::Enter(std::string_view job_uid) {
  const std::size_t shard = ShardOf(job_uid);
  const MutexLock lock(mutex_);
  if (!open_[shard]) return std::nullopt;
  ++at_work_.at(shard);
  return std::optional<Pass>(std::in_place, *this, shard);
}

void ShardGate::Leave(std::size_t shard) {
  const MutexLock lock(mutex_);
  --at_work_.at(shard);
}

}  // namespace lockstep::sharding
