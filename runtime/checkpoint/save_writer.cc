#include "runtime/checkpoint/save_writer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/checkpoint/block_sums.h"
#include "runtime/checkpoint/sha256.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr auto kUntilSeen = 5s;  // an object that was stored must be visible after this time
constexpr int kLooks = 3;        // how often to check for an object after the store reported an error
constexpr auto kBetweenLooks = 500ms;

// Processes the content in pieces, because both checksums of a large shard take long, and reports progress
// between them.
Result<void> AddSums(const PendingSave& save, std::string_view content, ShardReporter& reporter,
                     ShardEntry& entry) {
  Sha256Sum sum;
  entry.block_bytes = kBlockBytes;
  for (std::size_t begin = 0; begin < content.size(); begin += kBlockBytes) {
    if (save.stop.stop_requested()) return Abandoned();
    const std::string_view block = content.substr(begin, kBlockBytes);
    sum.Add(block);
    entry.block_crc32 += BlockSums(block, kBlockBytes);
    reporter.Advanced(static_cast<int64_t>(block.size()));
  }
  entry.sha256 = sum.Finish();
  return {};
}

}  // namespace

SaveWriter::SaveWriter(const api::CheckpointSpec& spec, const protocol::JobIdentity& job,
                       const Json& training, ObjectStore& store, const Ownership& ownership,
                       const Clock& clock, AwaitTurn await_turn)
    : spec_(spec),
      job_(job),
      training_(training),
      store_(store),
      ownership_(ownership),
      clock_(clock),
      await_turn_(std::move(await_turn)) {}

void SaveWriter::Drop(const PendingSave& save) {
  if (save.place.rank == 0) return Lose(save);
  (void)PublishShard(*save.exchange, save.key(), save.place.rank,
                     Error{ErrorCode::kCancelled, "a newer save replaced this one"});
}

SaveOutcome SaveWriter::Write(const PendingSave& save) {
  SaveOutcome outcome{.step = save.place.step, .uri = store_.UriOf(FolderOfStep(save.place.step))};
  const Result<int64_t> written = WriteAndCatch(save);
  outcome.seconds = Seconds(clock_.Steady() - save.started).count();
  if (written.ok()) {
    outcome.bytes = *written;
  } else {
    outcome.error = written.error();
  }
  return outcome;
}

Result<int64_t> SaveWriter::WriteAndCatch(const PendingSave& save) {
  try {
    return WriteAll(save);
  } catch (
      const std::exception& exception) {  // for example lack of memory for the manifest: training continues
    return Error{ErrorCode::kInternal, exception.what()};
  }
}

// Writes this rank's shard, and on rank 0 the manifest. Returns the bytes of all shards that this rank knows.
Result<int64_t> SaveWriter::WriteAll(const PendingSave& save) {
  const auto shard = WriteShardAndCatch(save);
  if (save.place.rank == 0) {
    if (shard.ok()) history_file_.Keep(save.place.history, save.stop.get_token());
    return Commit(save, shard);
  }
  const auto published = PublishShard(*save.exchange, save.key(), save.place.rank, shard);
  if (!shard.ok()) return shard.error();
  if (!published.ok()) return published.error();
  return shard->bytes;
}

Result<ShardEntry> SaveWriter::WriteShardAndCatch(const PendingSave& save) {
  try {
    return WriteShard(save);
  } catch (
      const std::exception& exception) {  // for example lack of memory for a part of it: training continues
    return Error{ErrorCode::kInternal, exception.what()};
  }
}

Result<ShardEntry> SaveWriter::WriteShard(const PendingSave& save) {
  const Snapshot& place = save.place;
  ShardReporter reporter(save.exchange.get(), save.key(), place.rank, clock_, progress_);
  // Only rank 0 knows whether another job has taken the location, and without its shard there is no
  // checkpoint.
  if (const auto lost = ownership_.lost(); lost.has_value() && place.rank == 0) return *lost;
  const std::string_view content = save.share->Await();
  ShardEntry entry{.name = ShardName(place.rank, ShardsOf(save)),
                   .bytes = static_cast<int64_t>(content.size()),
                   .sha256 = {},
                   .tensors = save.share->places()};
  LOCKSTEP_TRY(AddSums(save, content, reporter, entry));
  LOCKSTEP_TRY(Send(save, ObjectOf(place.step, entry), content, reporter));
  LOCKSTEP_TRY(AwaitObject(ObjectOf(place.step, entry), entry.bytes, save.stop.get_token())
                   .WithContext("the store accepted the object, but does not have it"));
  return entry;
}

Result<void> SaveWriter::Send(const PendingSave& save, const std::string& name, std::string_view content,
                              ShardReporter& reporter) {
  return store_.PutPaced(name, content, [&](int64_t bytes) -> Result<void> {
    if (spec_.upload_bytes_per_second) await_turn_(save, bytes, [&] { reporter.HeldBack(); });
    if (save.stop.stop_requested()) return Abandoned();
    reporter.Advanced(bytes);
    return {};
  });
}

// S3 shows accepted objects at once. But a server has been observed to report success for an upload whose
// parts it was still assembling (in its second answer, when the first was lost). A manifest must not name an
// object that may never appear.
Result<void> SaveWriter::AwaitObject(const std::string& name, int64_t bytes, const std::stop_token& stop) {
  const SteadyTime deadline = clock_.Steady() + kUntilSeen;
  for (Milliseconds pause{10};; pause = std::min<Milliseconds>(2 * pause, 500ms)) {
    char last = 0;
    Result<void> seen = store_.Read(name, bytes - 1, {&last, 1});
    const bool may_come = !seen.ok() && seen.error().code == ErrorCode::kNotFound;
    if (!may_come || stop.stop_requested() || clock_.Steady() > deadline) return seen;
    std::this_thread::sleep_for(pause);
  }
}

// Rank 0: collects the reports of the other ranks, then writes the manifest.
Result<int64_t> SaveWriter::Commit(const PendingSave& save, const Result<ShardEntry>& mine) {
  const Snapshot& place = save.place;
  Manifest manifest{.job_uid = job_.uid,
                    .job_name = job_.name,
                    .step = place.step,
                    .epoch = place.epoch,
                    .round = place.round,
                    .world = place.world,
                    .time = FormatTime(clock_.Now()),
                    .evaluations = place.evaluations,
                    .shards = {},
                    .training = training_};
  if (const Result<void> gathered = CollectShards(save, mine, manifest.shards); !gathered.ok()) {
    GiveUp(save, manifest.shards);
    if (mine.ok() || mine.error().code != ErrorCode::kUnavailable)
      RemoveLostSaves(store_, retention_, save.stop.get_token());
    return gathered.error();
  }
  const std::string name = FolderOfStep(place.step) + "/" + std::string(kManifestName);
  if (const Result<void> put = store_.Put(name, EncodeManifest(manifest)); !put.ok()) {
    if (IsSurelyAbsent(name, put.error())) {
      GiveUp(save, manifest.shards);
    } else {
      retention_.in_doubt.insert(place.step);
    }
    return put.error();
  }
  // A disk that has room for one more checkpoint than it keeps would stay full.
  if (retention_.newest.has_value() && retention_.newest->step == place.step)
    retention_.lost.push_back(*retention_.newest);
  retention_.newest = LostSave{place.step, ShardsOf(save)};
  RemoveLostSaves(store_, retention_, save.stop.get_token());
  RemoveWhatIsNotKept(store_, {place.step, place.round, spec_.keep_last, spec_.keep_every_steps}, retention_);
  return std::accumulate(manifest.shards.begin(), manifest.shards.end(), int64_t{0},
                         [](int64_t bytes, const ShardEntry& shard) { return bytes + shard.bytes; });
}

// Collects the shards of all ranks, or of those that reported one.
Result<void> SaveWriter::CollectShards(const PendingSave& save, const Result<ShardEntry>& mine,
                                       std::vector<ShardEntry>& shards) {
  std::optional<Error> first;
  std::optional<ShardWait> others;
  if (save.exchange != nullptr)
    others.emplace(*save.exchange, save.key(), save.stop.get_token(), clock_, progress_);
  for (int rank = 0; rank < save.place.world; ++rank) {
    Result<ShardEntry> entry = rank == 0 ? mine : others->Await(rank);
    if (entry.ok()) {
      shards.push_back(std::move(entry).value());
    } else if (!first.has_value()) {
      first = entry.error();
    }
  }
  if (save.stop.stop_requested()) return Abandoned();
  return first.has_value() ? Result<void>(*first) : Result<void>();
}

// If the store did not answer, the manifest may exist already or appear later. Even a rejection may concern
// the remains of an earlier request on a broken connection, and the store may accept this request a moment
// later.
bool SaveWriter::IsSurelyAbsent(const std::string& manifest, const Error& put_error) {
  if (put_error.code == ErrorCode::kUnavailable) return false;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    const auto found = store_.Get(manifest);
    if (found.ok() || found.error().code != ErrorCode::kNotFound) return false;
  }
  return true;
}

// Otherwise, on a full disk, its shards would use the space that the next save needs. No other attempt uses
// their names.
void SaveWriter::GiveUp(const PendingSave& save, const std::vector<ShardEntry>& shards) {
  Lose(save);
  for (const ShardEntry& shard : shards) {
    if (save.stop.stop_requested() || !store_.Delete(ObjectOf(save.place.step, shard)).ok()) return;
  }
}

ShardSet SaveWriter::ShardsOf(const PendingSave& save) const {
  return {job_.uid, save.place.world, save.place.round, save.attempt};
}

void SaveWriter::Lose(const PendingSave& save) {
  const Snapshot& place = save.place;
  // In a world of one no shard can arrive late; and another process may save this step alone, too.
  if (place.world > 1) retention_.lost.push_back({place.step, ShardsOf(save)});
}

}  // namespace lockstep::checkpoint
