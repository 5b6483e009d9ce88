#pragma once
// The inputs and the outcome of a save. Plain values; the exchange between the ranks is an interface.

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

// Lets the ranks of a round report that their shards are stored. Used from the background thread, which may
// keep it slightly longer than the round lasts.
class ShardExchange {
 public:
  virtual ~ShardExchange() = default;
  [[nodiscard]] virtual Result<void> Publish(const std::string& key, const std::string& value) = 0;
  // Blocks until the key exists, for at most `limit` (about a second: between two calls the save checks
  // whether it was abandoned). kDeadlineExceeded: the key does not exist yet. Any other error ends the save.
  [[nodiscard]] virtual Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) = 0;
  // Whether the round has ended: a rank that has not published its shard may be dead.
  [[nodiscard]] virtual bool IsOver() = 0;
};

// The same on every rank of the round, except for `rank` and the data of tensors.
struct Snapshot {
  int64_t step = 0;
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  std::vector<NamedTensor> tensors;  // tensors that another rank writes may have no data
  EvaluationRecord evaluations{};
  std::vector<protocol::HistoryRecord> history{};  // of rank 0's process, stored next to the checkpoint
  double epoch = -1;                               // passes over the data; -1: not known
  std::vector<int> writers{};  // the rank that writes each tensor; empty: DivideTensors decides
};

// Which rank of `world` writes or reads each tensor. Depends only on the tensors' sizes.
[[nodiscard]] std::vector<int> DivideTensors(const std::vector<NamedTensor>& tensors, int world);

struct SaveOutcome {
  int64_t step = 0;
  std::string uri;             // of the checkpoint's folder
  double seconds = 0;          // from Save to the manifest (on ranks other than 0: to this rank's shard)
  int64_t bytes = 0;           // of all shards, on rank 0
  std::optional<Error> error;  // set if the save failed
};

}  // namespace lockstep::checkpoint
