#pragma once
// What a save is made of, and what became of it. Plain values; the ranks' exchange is an interface.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/evaluation_record.h"
#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/history.h"

namespace lockstep::checkpoint {

// How the ranks of a round tell each other that their shards are stored. Used from the background thread,
// which may hold it a little longer than the round lives.
class ShardExchange {
 public:
  virtual ~ShardExchange() = default;
  [[nodiscard]] virtual Result<void> Publish(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is there, at most for `limit` (about a second: between two calls the save looks
  // whether it was abandoned). kDeadlineExceeded: not yet there; any other error ends the save.
  [[nodiscard]] virtual Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) = 0;
  // The round has ended: a rank that has not published its shard may be dead.
  [[nodiscard]] virtual bool IsOver() = 0;
};

// The same on every rank of the round.
struct Snapshot {
  int64_t step = 0;
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  std::vector<NamedTensor> tensors;  // those that another rank writes may be without data
  EvaluationRecord evaluations{};
  std::vector<protocol::HistoryRecord> history{};  // of rank 0's process, to be kept beside the checkpoint
  double epoch = -1;                               // passes over the data; -1: not known
  std::vector<int> writers{};                      // of each tensor; absent: DivideTensors
};

// Which rank of `world` takes each tensor, to write or to read it, by their sizes alone.
[[nodiscard]] std::vector<int> DivideTensors(const std::vector<NamedTensor>& tensors, int world);

struct SaveOutcome {
  int64_t step = 0;
  std::string uri;             // of the checkpoint's folder
  double seconds = 0;          // from Save to the manifest (or this rank's shard, on other ranks than 0)
  int64_t bytes = 0;           // of all shards, on rank 0
  std::optional<Error> error;  // set: it failed
};

}  // namespace lockstep::checkpoint
