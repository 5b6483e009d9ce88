#pragma once
// Saves the training state and finds what to load of it. Saving copies the tensors and returns; a background
// thread writes this rank's shard (the replicated tensors are divided over the ranks), and rank 0 writes the
// manifest last, after all shards; before it the history, of which nothing depends. One thread (the step
// thread) calls everything here; at most one save is in flight, a newer one replaces a waiting one. Killed at
// any byte, either the new checkpoint or the one before can be loaded. The destructor gives up what is in
// flight and joins, after at most one request to the store.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/ownership.h"
#include "runtime/checkpoint/part_reader.h"
#include "runtime/checkpoint/save.h"
#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::checkpoint {

class Checkpointer {
 public:
  // Writes to the store once, so that a wrong URI, bucket or secret is found before training begins. A store
  // that does not answer is no error: a rank that has peers needs none yet.
  [[nodiscard]] static Result<std::unique_ptr<Checkpointer>> Open(const api::CheckpointSpec& spec,
                                                                  const protocol::JobIdentity& job,
                                                                  const Json& training);
  // With a store that is already open.
  Checkpointer(const api::CheckpointSpec& spec, const protocol::JobIdentity& job, const Json& training,
               std::unique_ptr<ObjectStore> store);
  ~Checkpointer();

  // Rank 0, before it reads what the job begins from, claims the place for the job; then, and in each round,
  // it holds it. See ownership.h.
  [[nodiscard]] Ownership& ownership();

  // Takes this rank's share of the tensors as they are now (host_copy.h). Every rank of the round calls it
  // with the same snapshot. `exchange` is kept until the save ends; a world of one needs none. Throws what
  // LibTorch throws, such as a lack of memory. A save that waits is dropped before, so that this host holds two
  // shares at most, one of which is being written.
  void Copy(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange);
  // Stores what Copy took, in the background.
  void Begin();
  // Or frees it: another rank could not take its share.
  void Forget();
  void Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
    Copy(snapshot, std::move(exchange));
    Begin();
  }
  // Waits until nothing is in flight; meanwhile uploadBytesPerSecond holds nothing back.
  // kDeadlineExceeded where that takes longer.
  [[nodiscard]] Result<void> Wait(std::chrono::milliseconds limit);
  // Rises while what is in flight makes progress; on rank 0 that of a rank for whose shard it waits, too.
  [[nodiscard]] int64_t progress() const;
  // The round broke: what is in flight becomes no checkpoint, unless it already is one, and its end is no
  // outcome. Returns at once.
  void Abandon();
  // What became of saves since the last call, oldest first. A save that this rank replaced is not among them;
  // kAborted on rank 0 says that another rank had already moved on to a newer one, which is no fault of the
  // store.
  [[nodiscard]] std::vector<SaveOutcome> TakeOutcomes();

  // Reads what the job needs of a checkpoint; an error of kDataLoss, kNotFound or kUnsupported says that it
  // is damaged.
  using Load = std::function<Result<void>(const Manifest& manifest)>;
  // What a job begins from: the first checkpoint that `load` could read; damaged ones are passed over. nullopt:
  // a listing after the last one that was passed over has no other. First it waits for what this process is
  // storing, for `patience` at most, and abandons it then: its manifest would remove what is being read. The
  // job's own newest checkpoint comes first, whatever spec.checkpoint.resume says: a job that restarts
  // goes on. A job that has written none follows `resume`: the newest of any job below the URI (Auto), none
  // (Never), or exactly the step it names, whose absence is an error. Any other error is the store's, or that
  // of `load`: without it nobody knows what the newest is. Evaluations of another job, or under another
  // spec.training.earlyStop, are not told.
  [[nodiscard]] Result<std::optional<Manifest>> Resume(
      const Load& load, std::chrono::milliseconds patience = std::chrono::minutes(1));
  // What Resume passed over since the last call.
  [[nodiscard]] std::vector<protocol::CheckpointDamaged> TakeDamaged();
  // For a `load`, of any rank: the manifest of a step, and parts of its tensors, as ReadParts.
  [[nodiscard]] Result<Manifest> Find(int64_t step);
  [[nodiscard]] Result<int64_t> Read(const Manifest& manifest, const std::vector<WantedPart>& wanted);
  [[nodiscard]] std::string UriOf(int64_t step) const;
  // Whether spec.checkpoint.restore leaves all but the weights of this checkpoint, which is another job's.
  [[nodiscard]] bool TakesOnlyWeightsOf(const Manifest& manifest) const;

 private:
  struct State;
  // Nothing is in flight any more.
  Result<void> Settle(std::chrono::milliseconds patience);
  Result<std::optional<Manifest>> FindToResume(const Load& load);
  // The newest sound one of those that `wanted` accepts.
  Result<std::optional<Manifest>> LoadFirst(const std::function<bool(const Manifest&)>& wanted,
                                            const Load& load);
  Result<void> PassOver(int64_t step, const Error& damage);
  Result<Manifest> LoadExactly(int64_t step, const Load& load);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::checkpoint
