#pragma once
// The reports of the ranks of a round about their shards of one save, through a ShardExchange. A rank reports
// its progress while it works, and at the end its shard or the reason why there is none. Rank 0 waits for the
// shards of the others. One thread.

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

// Rank 0 abandons a save if the rank whose shard it waits for makes no progress for this long. A store client
// fails far sooner if a server is silent; a file system may hang for longer.
inline constexpr std::chrono::seconds kStallLimit{300};
// The same after the round has ended: the rank is likely dead.
inline constexpr std::chrono::seconds kStallLimitAfterTheRound{10};

// The error of an abandoned save.
[[nodiscard]] Error Abandoned();

// One save of a round.
struct SaveKey {
  int64_t round = 0;
  int64_t step = 0;
  int attempt = 0;  // at this step in this round
};

// Reports to rank 0 that the shard of a rank is stored, or that there will be none.
[[nodiscard]] Result<void> PublishShard(ShardExchange& exchange, const SaveKey& save, int rank,
                                        const Result<ShardEntry>& shard);

// Increases while a save makes progress. Any thread.
using Progress = std::atomic<int64_t>;

// Reports the progress of one rank with its shard; the progress of rank 0 is not published. `exchange` is
// null in a world of one. The references outlive the object.
class ShardReporter {
 public:
  ShardReporter(ShardExchange* exchange, const SaveKey& save, int rank, const Clock& clock,
                Progress& progress);

  // More bytes of the shard were read for its checksums or passed to the store. Publishes at most once a
  // second.
  void Advanced(int64_t bytes);
  // The rank waits on purpose because of spec.checkpoint.uploadBytesPerSecond.
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

// On rank 0: waits for the shards of the other ranks one after another, and counts their progress as its own.
// The references outlive the object.
class ShardWait {
 public:
  ShardWait(ShardExchange& exchange, const SaveKey& save, std::stop_token stop, const Clock& clock,
            Progress& progress);

  // kDeadlineExceeded: the rank made no progress for too long. kAborted: the same after the end of the round.
  // After either error, Await does not wait for other ranks but returns what they have already published. Any
  // other error is what the rank published.
  [[nodiscard]] Result<ShardEntry> Await(int rank);

 private:
  // The error if rank 0 should stop waiting for a rank that has published neither a shard nor an error.
  [[nodiscard]] std::optional<Error> Judge(int rank);

  ShardExchange& exchange_;
  const SaveKey save_;
  const std::stop_token stop_;
  const Clock& clock_;
  Progress& progress_;
  std::string published_;                 // the progress of the rank that is waited for
  SteadyTime since_;                      // of the newest progress
  std::optional<SteadyTime> over_since_;  // since when the round is over
  bool gave_up_ = false;
};

}  // namespace lockstep::checkpoint
