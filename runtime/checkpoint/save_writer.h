#pragma once
// Writes saves one after another: this rank's shard; on rank 0 then the history, and the manifest last, when
// all ranks have reported that their shards are stored. One thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/history_file.h"
#include "runtime/checkpoint/host_copy.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/ownership.h"
#include "runtime/checkpoint/retention.h"
#include "runtime/checkpoint/save.h"
#include "runtime/checkpoint/shard_messages.h"
#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::checkpoint {

struct PendingSave {
  Snapshot place;  // without tensors
  std::shared_ptr<HostCopy> share;
  std::shared_ptr<ShardExchange> exchange;
  SteadyTime started;
  int attempt = 0;          // at this step in this round
  std::stop_source stop{};  // requested when the save is abandoned

  [[nodiscard]] SaveKey key() const { return {place.round, place.step, attempt}; }
};

class SaveWriter {
 public:
  // Called before each piece of a shard is sent, if spec.checkpoint.uploadBytesPerSecond is set. Calls
  // `held_back` each second until the piece may be sent. The references outlive the writer.
  using AwaitTurn =
      std::function<void(const PendingSave& save, int64_t bytes, const std::function<void()>& held_back)>;

  SaveWriter(const api::CheckpointSpec& spec, const protocol::JobIdentity& job, const Json& training,
             ObjectStore& store, const Ownership& ownership, const Clock& clock, AwaitTurn await_turn);

  [[nodiscard]] SaveOutcome Write(const PendingSave& save);
  // Increases while Write makes progress. Any thread.
  [[nodiscard]] int64_t progress() const { return progress_.load(); }
  // Handles a save that will not be written, because a newer one replaced it or the round broke. Ranks other
  // than 0 report that to rank 0, which may wait for the shard. Rank 0 remembers that the others may have
  // stored theirs.
  void Drop(const PendingSave& save);

 private:
  [[nodiscard]] Result<int64_t> WriteAndCatch(const PendingSave& save);
  [[nodiscard]] Result<int64_t> WriteAll(const PendingSave& save);
  [[nodiscard]] Result<ShardEntry> WriteShardAndCatch(const PendingSave& save);
  [[nodiscard]] Result<ShardEntry> WriteShard(const PendingSave& save);
  [[nodiscard]] Result<void> Send(const PendingSave& save, const std::string& name, std::string_view content,
                                  ShardReporter& reporter);
  [[nodiscard]] Result<void> AwaitObject(const std::string& name, int64_t bytes, const std::stop_token& stop);
  [[nodiscard]] Result<int64_t> Commit(const PendingSave& save, const Result<ShardEntry>& mine);
  [[nodiscard]] Result<void> CollectShards(const PendingSave& save, const Result<ShardEntry>& mine,
                                           std::vector<ShardEntry>& shards);
  [[nodiscard]] bool IsSurelyAbsent(const std::string& manifest, const Error& put_error);
  void GiveUp(const PendingSave& save, const std::vector<ShardEntry>& shards);
  void Lose(const PendingSave& save);
  [[nodiscard]] ShardSet ShardsOf(const PendingSave& save) const;

  const api::CheckpointSpec& spec_;
  const protocol::JobIdentity& job_;
  const Json& training_;
  ObjectStore& store_;
  const Ownership& ownership_;
  const Clock& clock_;
  const AwaitTurn await_turn_;
  Progress progress_ = 0;
  HistoryFile history_file_{store_};
  RetentionMemory retention_;
};

}  // namespace lockstep::checkpoint
