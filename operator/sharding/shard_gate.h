#pragma once
// The shards that this process works on, and the work in progress on each. A shard may be handed over once no
// work on it is in progress here. Any thread.

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "operator/sharding/shard_table.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::sharding {

class ShardGate {
 public:
  // Work on one shard is in progress while this object exists.
  class Pass {
   public:
    Pass(ShardGate& gate, std::size_t shard) : gate_(&gate), shard_(shard) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), shard_(other.shard_) {}
    Pass& operator=(Pass&&) = delete;
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave(shard_);
    }

   private:
    ShardGate* gate_;
    std::size_t shard_;
  };

  // Admits work on these shards only. Returns the shards in use: these, and others until their last work has
  // ended.
  ShardSet Open(const ShardSet& shards);
  [[nodiscard]] ShardSet open() const;
  [[nodiscard]] bool IsOpenTo(std::string_view job_uid) const { return open()[ShardOf(job_uid)]; }
  // nullopt if the job's shard is not open.
  [[nodiscard]] std::optional<Pass> Enter(std::string_view job_uid);

 private:
  void Leave(std::size_t shard);

  mutable Mutex mutex_;
  ShardSet open_ LOCKSTEP_GUARDED_BY(mutex_);
  std::array<int, kShards> at_work_ LOCKSTEP_GUARDED_BY(mutex_){};
};

}  // namespace lockstep::sharding
