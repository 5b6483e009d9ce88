#pragma once
// Saves the training state and finds what to load. A save copies the tensors and returns; a background thread
// writes this rank's shard (replicated tensors are divided over the ranks). After all shards, rank 0 writes
// the history, which no checkpoint depends on, and the manifest last. The step thread calls everything here.
// At most one save is in flight; a newer one replaces one that waits. If the process is killed at any byte,
// either the new checkpoint or the one before can be loaded. The destructor abandons what is in flight and
// joins the thread, after at most one request to the store.

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
  // that does not answer is not an error, because a rank that has peers does not need it yet.
  [[nodiscard]] static Result<std::unique_ptr<Checkpointer>> Open(const api::CheckpointSpec& spec,
                                                                  const protocol::JobIdentity& job,
                                                                  const Json& training);
  // Uses a store that is already open.
  Checkpointer(const api::CheckpointSpec& spec, const protocol::JobIdentity& job, const Json& training,
               std::unique_ptr<ObjectStore> store);
  ~Checkpointer();

  // Rank 0 claims the location for the job before it restores, and in each round holds the claim. See
  // ownership.h.
  [[nodiscard]] Ownership& ownership();

  // Copies this rank's share of the tensors (host_copy.h). Every rank of the round calls it with the same
  // snapshot. `exchange` is kept until the save ends; a world of one needs none. Throws what LibTorch throws,
  // for example for lack of memory. A waiting save is dropped first, so this host holds at most two shares,
  // one of which is being written.
  void Copy(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange);
  // Stores in the background what Copy took.
  void Begin();
  // Frees what Copy took, because another rank could not copy its share.
  void Forget();
  void Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
    Copy(snapshot, std::move(exchange));
    Begin();
  }
  // Waits until nothing is in flight; meanwhile uploadBytesPerSecond does not apply. kDeadlineExceeded: it
  // takes longer than `limit`.
  [[nodiscard]] Result<void> Wait(std::chrono::milliseconds limit);
  // Increases while the save in flight makes progress; on rank 0 also with the progress of the rank it waits
  // for.
  [[nodiscard]] int64_t progress() const;
  // The round broke: the save in flight does not become a checkpoint, unless it already is one, and produces
  // no outcome. Returns at once.
  void Abandon();
  // The outcomes of saves since the last call, oldest first. A save that this rank replaced is not among
  // them. kCancelled on rank 0: another rank had already replaced the save by a newer one; nothing failed.
  [[nodiscard]] std::vector<SaveOutcome> TakeOutcomes();

  // Reads what the job needs from a checkpoint. kDataLoss, kNotFound and kUnsupported mean that the
  // checkpoint is damaged.
  using Load = std::function<Result<void>(const Manifest& manifest)>;
  // Finds the checkpoint that a job starts from: the first one that `load` can read. Damaged ones are
  // skipped; nullopt if a listing after the last skipped one has no other. First waits up to `patience` for
  // saves of this process and then abandons them, because their manifest would remove what is being read. The
  // job's own newest checkpoint comes first, whatever spec.checkpoint.resume says, so a restarted job
  // continues. For a job without checkpoints, `resume` selects the newest of any job below the URI (Auto),
  // none (Never), or exactly the named step, whose absence is an error. Any other error is that of the store
  // or of `load`: then it is unknown which checkpoint is the newest. The returned manifest has no evaluations
  // if they are of another job or another spec.training.earlyStop.
  [[nodiscard]] Result<std::optional<Manifest>> Resume(
      const Load& load, std::chrono::milliseconds patience = std::chrono::minutes(1));
  // The checkpoints that Resume skipped since the last call.
  [[nodiscard]] std::vector<protocol::CheckpointDamaged> TakeDamaged();
  // For a `load` on any rank: Find reads the manifest of a step, Read reads parts of its tensors (ReadParts).
  [[nodiscard]] Result<Manifest> Find(int64_t step);
  [[nodiscard]] Result<int64_t> Read(const Manifest& manifest, const std::vector<WantedPart>& wanted);
  [[nodiscard]] std::string UriOf(int64_t step) const;
  // Whether only the weights are restored, because spec.checkpoint.restore says so and the checkpoint belongs
  // to another job.
  [[nodiscard]] bool TakesOnlyWeightsOf(const Manifest& manifest) const;

 private:
  struct State;
  // Waits until nothing is in flight.
  Result<void> Settle(std::chrono::milliseconds patience);
  Result<std::optional<Manifest>> FindToResume(const Load& load);
  // Loads the newest undamaged checkpoint that `wanted` accepts.
  Result<std::optional<Manifest>> LoadFirst(const std::function<bool(const Manifest&)>& wanted,
                                            const Load& load);
  Result<void> PassOver(int64_t step, const Error& damage);
  Result<Manifest> LoadExactly(int64_t step, const Load& load);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::checkpoint
