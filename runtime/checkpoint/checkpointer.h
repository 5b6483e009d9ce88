#pragma once
// Saves and loads the training state. Saving copies the tensors and returns; a background thread writes this
// rank's shard (the replicated tensors are divided over the ranks), and rank 0 writes the manifest last,
// after all shards. One thread (the step thread) calls everything here; at most one save is in flight, a
// newer one replaces a waiting one.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::checkpoint {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// How the ranks of a round tell each other that their shards are stored. Used from the background thread.
class ShardExchange {
 public:
  virtual ~ShardExchange() = default;
  [[nodiscard]] virtual Result<void> Publish(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is there; kDeadlineExceeded or kAborted where it will not come.
  [[nodiscard]] virtual Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) = 0;
};

// The same on every rank of the round: replicated state.
struct Snapshot {
  int64_t step = 0;
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  std::vector<NamedTensor> tensors;
};

struct SaveOutcome {
  int64_t step = 0;
  std::string uri;             // of the checkpoint's folder
  double seconds = 0;          // from Save to the manifest (or this rank's shard, on other ranks than 0)
  int64_t bytes = 0;           // of all shards, on rank 0
  std::optional<Error> error;  // set: it failed
};

struct LoadedState {
  Manifest manifest;
  std::string uri;
  std::vector<NamedTensor> tensors;
};

class Checkpointer {
 public:
  // Reaches the store once, so that a wrong URI, bucket or secret is found before training begins.
  [[nodiscard]] static Result<std::unique_ptr<Checkpointer>> Open(const api::CheckpointSpec& spec,
                                                                  const protocol::JobIdentity& job,
                                                                  const Json& training);
  ~Checkpointer();

  // Copies the tensors to host memory before it returns. `exchange` is kept until the save ends.
  void Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange);
  // Waits until nothing is in flight. kDeadlineExceeded where that takes longer.
  [[nodiscard]] Result<void> Wait(std::chrono::milliseconds limit);
  // What became of saves since the last call, oldest first.
  [[nodiscard]] std::vector<SaveOutcome> TakeOutcomes();

  // Steps of the complete checkpoints, newest first.
  [[nodiscard]] Result<std::vector<int64_t>> Steps();
  // Verified by size and SHA-256. kDataLoss where it is damaged, kNotFound where it does not exist.
  [[nodiscard]] Result<LoadedState> Load(int64_t step);
  // The newest that verifies; damaged ones are logged by name and passed over. nullopt where there is none.
  [[nodiscard]] Result<std::optional<LoadedState>> LoadNewest();

 private:
  struct State;
  explicit Checkpointer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::checkpoint
