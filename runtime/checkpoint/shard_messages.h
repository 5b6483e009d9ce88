#pragma once
// What the ranks of a round report of their shards of one save, through a ShardExchange. A rank reports its
// progress while it works, and at the end its shard, or why there is none; rank 0 waits for the shards of the
// others. One thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/save.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

// Rank 0 gives a save up when the rank for whose shard it waits makes no progress for this long. A store's
// client fails far sooner where a server is silent; a file system may hang for longer.
inline constexpr std::chrono::seconds kStallLimit{300};
// The same after the round has ended: the rank is likely dead.
inline constexpr std::chrono::seconds kStallLimitAfterTheRound{10};

// What a save that was given up ends with.
[[nodiscard]] Error Abandoned();

// One save of a round.
struct SaveKey {
  int64_t round = 0;
  int64_t step = 0;
  int attempt = 0;  // at this step in this round
};

// The shard of a rank is stored, or there will be none.
[[nodiscard]] Result<void> PublishShard(ShardExchange& exchange, const SaveKey& save, int rank,
                                        const Result<ShardEntry>& shard);

// Rises while a save makes progress. Any thread.
using Progress = std::atomic<int64_t>;

// The progress of one rank with its shard; that of rank 0 is not published. `exchange` is absent in a world of
// one. The references outlive it.
class ShardReporter {
 public:
  ShardReporter(ShardExchange* exchange, const SaveKey& save, int rank, const Clock& clock,
                Progress& progress);

  // More bytes of the shard have been read for its checksums, or given to the store. Published at most once a
  // second.
  void Advanced(int64_t bytes);
  // The rank waits on purpose, because of spec.checkpoint.uploadBytesPerSecond.
  void HeldBack() { Advanced(1); }

 private:
  ShardExchange* const exchange_;
  const SaveKey save_;
  const int rank_;
  const Clock& clock_;
  Progress& progress_;
  SteadyTime published_;
  bool can_publish_ = true;
};

// Rank 0 waits for the shards of the other ranks, one after another; their progress is its own. The references
// outlive it.
class ShardWait {
 public:
  ShardWait(ShardExchange& exchange, const SaveKey& save, std::stop_token stop, const Clock& clock,
            Progress& progress);

  // kDeadlineExceeded: the rank made no progress for too long; kAborted: the same after the round. After
  // either error Await waits for no other rank: it returns what they have already published. Any other error
  // is what the rank published.
  [[nodiscard]] Result<ShardEntry> Await(int rank);

 private:
  // Why to wait no longer for a rank that has published neither a shard nor an error.
  [[nodiscard]] std::optional<Error> Judge(int rank);

  ShardExchange& exchange_;
  const SaveKey save_;
  const std::stop_token stop_;
  const Clock& clock_;
  Progress& progress_;
  std::string published_;                 // the progress of the rank that it waits for
  SteadyTime since_;                      // of the newest progress
  std::optional<SteadyTime> over_since_;  // the round
  bool gave_up_ = false;
};

}  // namespace lockstep::checkpoint
