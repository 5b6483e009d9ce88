#include "runtime/checkpoint/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "runtime/checkpoint/history_file.h"
#include "runtime/checkpoint/host_copy.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/retention.h"
#include "runtime/checkpoint/sha256.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/base/token_bucket.h"
#include "runtime/common/protocol/environment.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr auto kShardLimit =
    120s;  // rank 0 waits so long for the shards of the others, and for what the rate holds back
constexpr auto kPatience = 1s;   // and looks so often whether the save was abandoned
constexpr auto kUntilSeen = 5s;  // what is stored has to be there after so long
constexpr int kLooks = 3;        // for what was refused
constexpr auto kBetweenLooks = 500ms;

std::shared_ptr<HostCopy> CopyOfShare(const Snapshot& snapshot, HostCopy* spare) {
  const std::vector<int> writers =
      snapshot.writers.empty() ? WritersOf(snapshot.tensors, snapshot.world) : snapshot.writers;
  std::vector<NamedTensor> share;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] != snapshot.rank) continue;
    share.push_back(snapshot.tensors[i]);
  }
  return std::make_shared<HostCopy>(share, spare);
}

struct PendingSave {
  Snapshot place;  // without tensors
  std::shared_ptr<HostCopy> share;
  std::shared_ptr<ShardExchange> exchange;
  SteadyTime started;
  int attempt = 0;  // at this step in this round
  SteadyTime::duration shard_limit = kShardLimit;
  std::stop_source stop;  // abandoned
};

int64_t BytesOf(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += static_cast<int64_t>(named.tensor.nbytes());
  return bytes;
}

std::string ShardKey(const PendingSave& save, int rank) {
  std::string key = "checkpoint";
  for (const int64_t part : {save.place.round, save.place.step, int64_t{save.attempt}, int64_t{rank}}) {
    key += '/';
    key += std::to_string(part);
  }
  return key;
}

// No name is used twice, so that no shard is told, taken or removed for another.
std::string NameOfShard(const PendingSave& save) {
  const std::string name = ShardName(save.place.rank, save.place.world, save.place.round);
  if (save.attempt == 0) return name;
  const std::size_t ending = name.rfind('.');
  return name.substr(0, ending) + ".again-" + std::to_string(save.attempt) + name.substr(ending);
}

// What a rank publishes instead of its shard when there will be none.
std::string EncodeFailure(const Error& error) {
  return DumpJson({{"code", static_cast<int>(error.code)}, {"error", error.message}});
}

Result<ShardEntry> DecodePublished(const std::string& text, int rank) {
  const auto json = ParseJson(text);
  if (json.ok() && FindJson(*json, {"error"}) != nullptr) {
    return Error{static_cast<ErrorCode>(IntAt(*json, {"code"})), StringAt(*json, {"error"})}.WithContext(
        "rank " + std::to_string(rank));
  }
  return ParseShardEntry(text);
}

Error Abandoned() { return {ErrorCode::kAborted, "the save was given up"}; }

}  // namespace

// Rank r of n writes the tensors whose middle byte falls into the r-th n-th of all bytes: contiguous,
// near-equal shares.
std::vector<int> WritersOf(const std::vector<NamedTensor>& tensors, int world) {
  double total = 0;
  for (const NamedTensor& named : tensors) total += static_cast<double>(named.tensor.nbytes());
  std::vector<int> writers;
  double before = 0;
  for (const NamedTensor& named : tensors) {
    const auto bytes = static_cast<double>(named.tensor.nbytes());
    const double middle = total > 0 ? (before + bytes / 2) / total : 0;
    writers.push_back(std::min(world - 1, static_cast<int>(middle * world)));
    before += bytes;
  }
  return writers;
}

struct Checkpointer::State {
  api::CheckpointSpec spec;
  protocol::JobIdentity job;
  Json training;
  std::unique_ptr<ObjectStore> store;
  HistoryFile history_file{*store};  // of the thread
  const SystemClock clock{};
  Ownership ownership{*store, job, {.uri = spec.uri, .holder = EnvOr(protocol::env::kPodName, "")}, clock};

  std::mutex mutex;
  std::condition_variable_any changed;
  std::optional<PendingSave> waiting;  // GUARDED_BY(mutex)
  std::vector<PendingSave> replaced;   // GUARDED_BY(mutex); without tensors, to be told to rank 0
  TokenBucket turns{static_cast<double>(spec.upload_bytes_per_second.value_or(1)),
                    0};               // GUARDED_BY(mutex); bytes
  int waiting_callers = 0;            // GUARDED_BY(mutex)
  std::stop_source running;           // GUARDED_BY(mutex); of the save that is being written
  bool busy = false;                  // GUARDED_BY(mutex)
  std::set<int64_t> in_doubt;         // of the thread that stores; see RemoveWhatIsNotKept
  std::shared_ptr<HostCopy> spare;    // GUARDED_BY(mutex); of the save before, for its memory
  std::vector<SaveOutcome> outcomes;  // GUARDED_BY(mutex)
  // Of the thread that calls Save: the place of the last one.
  int64_t last_round = -1, last_step = -1;
  int attempt = 0;
  std::jthread thread;  // last: it stops before the rest goes

  // What evaluations came to under another rule, or in another job, says nothing about this one.
  [[nodiscard]] bool CountsItsEvaluations(const Manifest& manifest) const {
    const auto rule = [](const Json& of) {
      const Json* found = FindJson(of, {"earlyStop"});
      return found == nullptr ? Json() : *found;
    };
    return manifest.job_uid == job.uid && rule(manifest.training) == rule(training);
  }

  void Run(std::stop_token stop) {
    const std::stop_callback give_up(stop, [this] { Abandon(); });
    std::unique_lock lock(mutex);
    while (changed.wait(lock, stop, [this] { return waiting.has_value() || !replaced.empty(); })) {
      const std::vector<PendingSave> dropped = std::exchange(replaced, {});
      const std::optional<PendingSave> save = std::exchange(waiting, std::nullopt);
      if (save) running = save->stop;
      busy = true;
      lock.unlock();
      for (const PendingSave& other : dropped) TellReplaced(other);
      std::optional<SaveOutcome> outcome;
      if (save) outcome = Write(*save);
      lock.lock();
      busy = false;
      if (save) spare = save->share;
      if (outcome && (!outcome->error || !save->stop.stop_requested()))
        outcomes.push_back(*std::move(outcome));
      changed.notify_all();
    }
  }

  std::shared_ptr<HostCopy> TakeSpare() {
    const std::lock_guard lock(mutex);
    return std::exchange(spare, nullptr);
  }

  void Abandon() {
    const std::lock_guard lock(mutex);
    waiting.reset();
    replaced.clear();
    running.request_stop();
    changed.notify_all();
  }

  // Rank 0 may have begun the save that this rank replaced: it must not wait for the shard.
  static void TellReplaced(const PendingSave& save) {
    const Error error{ErrorCode::kAborted, "a newer save replaced this one"};
    (void)save.exchange->Publish(ShardKey(save, save.place.rank), EncodeFailure(error));
  }

  SaveOutcome Write(const PendingSave& save) {
    SaveOutcome outcome{.step = save.place.step, .uri = store->UriOf(FolderOfStep(save.place.step))};
    const Result<int64_t> written = WriteAndCatch(save);
    outcome.seconds = Seconds(clock.Steady() - save.started).count();
    if (written.ok()) {
      outcome.bytes = *written;
    } else {
      outcome.error = written.error();
    }
    return outcome;
  }

  Result<int64_t> WriteAndCatch(const PendingSave& save) {
    try {
      return WriteAll(save);
    } catch (const std::exception& exception) {  // no memory for the shard, say: training goes on
      return Error{ErrorCode::kInternal, exception.what()};
    }
  }

  // This rank's shard; on rank 0 then the manifest. Returns the bytes of all shards known here.
  Result<int64_t> WriteAll(const PendingSave& save) {
    const auto shard = WriteShard(save);
    if (save.place.rank == 0) {
      if (shard.ok()) history_file.Keep(save.place.history, save.stop.get_token());
      return Commit(save, shard);
    }
    const std::string text = shard.ok() ? EncodeShardEntry(*shard) : EncodeFailure(shard.error());
    const auto published = save.exchange->Publish(ShardKey(save, save.place.rank), text);
    if (!shard.ok()) return shard.error();
    LOCKSTEP_TRY(published);
    return shard->bytes;
  }

  Result<ShardEntry> WriteShard(const PendingSave& save) {
    const Snapshot& place = save.place;
    // Only rank 0 knows, and without its shard there is no checkpoint.
    if (const auto lost = ownership.lost(); lost.has_value() && place.rank == 0) return *lost;
    EncodedShard shard = EncodeShard(save.share->Await());
    ShardEntry entry{NameOfShard(save), static_cast<int64_t>(shard.content.size()), Sha256(shard.content),
                     std::move(shard.tensors)};
    if (save.stop.stop_requested()) return Abandoned();
    LOCKSTEP_TRY(Send(save, ObjectOf(place.step, entry), shard.content));
    LOCKSTEP_TRY(AwaitObject(ObjectOf(place.step, entry), entry.bytes, save.stop.get_token())
                     .WithContext("the store took it, but does not have it"));
    return entry;
  }

  Result<void> Send(const PendingSave& save, const std::string& name, std::string_view content) {
    if (!spec.upload_bytes_per_second) return store->Put(name, content);
    return store->PutPaced(name, content, [&](int64_t bytes) { return AwaitTurn(save, bytes); });
  }

  // Holds back what goes on beside training. Whoever waits for it has no other use for the network.
  Result<void> AwaitTurn(const PendingSave& save, int64_t bytes) {
    std::unique_lock lock(mutex);
    if (waiting_callers == 0) {
      const Milliseconds wait = turns.Take(clock.Steady(), static_cast<double>(bytes));
      changed.wait_for(lock, save.stop.get_token(), wait, [this] { return waiting_callers > 0; });
    }
    return save.stop.stop_requested() ? Result<void>(Abandoned()) : Result<void>();
  }

  // S3 shows at once what it has taken; a server has been seen to say so of an upload whose parts it was
  // still putting together (the second answer, where the first was lost). A manifest must not name what may
  // not come.
  Result<void> AwaitObject(const std::string& name, int64_t bytes, const std::stop_token& stop) {
    const SteadyTime deadline = clock.Steady() + kUntilSeen;
    for (Milliseconds pause{10};; pause = std::min<Milliseconds>(2 * pause, 500ms)) {
      char last = 0;
      Result<void> seen = store->Read(name, bytes - 1, {&last, 1});
      const bool may_come = !seen.ok() && seen.error().code == ErrorCode::kNotFound;
      if (!may_come || stop.stop_requested() || clock.Steady() > deadline) return seen;
      std::this_thread::sleep_for(pause);
    }
  }

  // Rank 0: gathers what the others stored, then makes the checkpoint exist.
  Result<int64_t> Commit(const PendingSave& save, const Result<ShardEntry>& mine) {
    const Snapshot& place = save.place;
    Manifest manifest{.job_uid = job.uid,
                      .job_name = job.name,
                      .step = place.step,
                      .epoch = place.epoch,
                      .round = place.round,
                      .world = place.world,
                      .time = FormatTime(clock.Now()),
                      .evaluations = place.evaluations,
                      .shards = {},
                      .training = training};
    LOCKSTEP_TRY(Gather(save, mine, manifest.shards));
    const std::string name = FolderOfStep(place.step) + "/" + std::string(kManifestName);
    if (const Result<void> put = store->Put(name, EncodeManifest(manifest)); !put.ok()) {
      if (IsSurelyAbsent(name, put.error())) {
        RemoveShards(save, manifest.shards);
      } else {
        in_doubt.insert(place.step);
      }
      return put.error();
    }
    RemoveWhatIsNotKept(*store, place.step, spec.keep_last, spec.keep_every_steps, in_doubt);
    return std::accumulate(manifest.shards.begin(), manifest.shards.end(), int64_t{0},
                           [](int64_t bytes, const ShardEntry& shard) { return bytes + shard.bytes; });
  }

  // The shards of all ranks. Where one lacks, the others are removed: on a full disk they would take the room
  // that the next save needs, and that is what removes them otherwise.
  Result<void> Gather(const PendingSave& save, const Result<ShardEntry>& mine,
                      std::vector<ShardEntry>& shards) {
    std::optional<Error> first;
    for (int rank = 0; rank < save.place.world; ++rank) {
      Result<ShardEntry> entry = rank == 0 ? mine : WaitForShard(save, rank);
      if (entry.ok()) {
        shards.push_back(std::move(entry).value());
      } else if (!first.has_value()) {
        first = entry.error();
      }
    }
    if (save.stop.stop_requested()) return Abandoned();
    if (!first.has_value()) return {};
    RemoveShards(save, shards);
    return *first;
  }

  // What a store did that did not answer nobody knows: the manifest may be there, or may yet come. One that
  // refuses may do so to what it takes for a request before this one, when a connection broke, and take this
  // one a moment later.
  [[nodiscard]] bool IsSurelyAbsent(const std::string& manifest, const Error& put_error) {
    if (put_error.code == ErrorCode::kUnavailable) return false;
    for (int look = 0; look < kLooks; ++look) {
      if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
      const auto found = store->Get(manifest);
      if (found.ok() || found.error().code != ErrorCode::kNotFound) return false;
    }
    return true;
  }

  // No other attempt uses their names.
  void RemoveShards(const PendingSave& save, const std::vector<ShardEntry>& shards) {
    for (const ShardEntry& shard : shards) {
      if (save.stop.stop_requested() || !store->Delete(ObjectOf(save.place.step, shard)).ok()) return;
    }
  }

  Result<ShardEntry> WaitForShard(const PendingSave& save, int rank) {
    while (!save.stop.stop_requested()) {
      const auto text = save.exchange->Wait(ShardKey(save, rank), kPatience);
      if (text.ok()) return DecodePublished(*text, rank);
      if (text.error().code != ErrorCode::kDeadlineExceeded) return text.error();
      if (clock.Steady() - save.started > save.shard_limit) {
        return text.error().WithContext("rank " + std::to_string(rank) + " has not stored its shard");
      }
    }
    return Abandoned();
  }

  Result<LoadedState> LoadShards(const Manifest& manifest) {
    LoadedState loaded{.manifest = manifest, .uri = store->UriOf(FolderOfStep(manifest.step)), .tensors = {}};
    for (const ShardEntry& shard : manifest.shards) {
      LOCKSTEP_TRY(const std::string content, ReadShard(*store, manifest.step, shard));
      LOCKSTEP_TRY(DecodeShard(content, shard.tensors, loaded.tensors)
                       .WithContext(store->UriOf(ObjectOf(manifest.step, shard))));
    }
    return loaded;
  }
};

Result<std::unique_ptr<Checkpointer>> Checkpointer::Open(const api::CheckpointSpec& spec,
                                                         const protocol::JobIdentity& job,
                                                         const Json& training) {
  LOCKSTEP_TRY(auto store, OpenObjectStore(spec.uri));
  log::Info("checkpoint store reached", {{"uri", spec.uri}});
  return std::make_unique<Checkpointer>(spec, job, training, std::move(store));
}

Checkpointer::Checkpointer(const api::CheckpointSpec& spec, const protocol::JobIdentity& job,
                           const Json& training, std::unique_ptr<ObjectStore> store)
    : state_(std::unique_ptr<State>(
          new State{.spec = spec, .job = job, .training = training, .store = std::move(store)})) {
  state_->thread = std::jthread([state = state_.get()](std::stop_token stop) { state->Run(stop); });
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
  LOCKSTEP_CHECK(snapshot.world == 1 || exchange != nullptr, "ranks that cannot meet cannot save together");
  const bool again = snapshot.round == state_->last_round && snapshot.step == state_->last_step;
  state_->attempt = again ? state_->attempt + 1 : 0;
  state_->last_round = snapshot.round;
  state_->last_step = snapshot.step;
  SteadyTime::duration shard_limit = kShardLimit;
  if (const auto rate = state_->spec.upload_bytes_per_second)
    shard_limit += std::chrono::seconds(BytesOf(snapshot.tensors) / *rate);
  PendingSave save{.place = {snapshot.step,
                             snapshot.round,
                             snapshot.rank,
                             snapshot.world,
                             {},
                             snapshot.evaluations,
                             snapshot.history,
                             snapshot.epoch},
                   .share = CopyOfShare(snapshot, state_->TakeSpare().get()),
                   .exchange = std::move(exchange),
                   .started = state_->clock.Steady(),
                   .attempt = state_->attempt,
                   .shard_limit = shard_limit,
                   .stop = {}};
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting && state_->waiting->place.rank != 0) {
    state_->waiting->share.reset();
    state_->replaced.push_back(std::move(*state_->waiting));
  }
  state_->waiting = std::move(save);
  state_->changed.notify_all();
}

Ownership& Checkpointer::ownership() { return state_->ownership; }

void Checkpointer::Abandon() { state_->Abandon(); }

Result<void> Checkpointer::Wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  ++state_->waiting_callers;
  state_->changed.notify_all();
  const bool idle = state_->changed.wait_for(
      lock, limit, [this] { return !state_->busy && !state_->waiting && state_->replaced.empty(); });
  --state_->waiting_callers;
  return idle ? Result<void>()
              : Error{ErrorCode::kDeadlineExceeded,
                      "the checkpoint was not stored within " + std::to_string(limit.count()) + " ms"};
}

std::vector<SaveOutcome> Checkpointer::TakeOutcomes() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->outcomes, {});
}

Result<std::vector<int64_t>> Checkpointer::Steps() {
  LOCKSTEP_TRY(const auto stored, ListSteps(*state_->store));
  std::vector<int64_t> steps;
  for (const StoredStep& each : stored) {
    if (each.has_manifest) steps.push_back(each.step);
  }
  return steps;
}

Result<LoadedState> Checkpointer::Load(int64_t step) {
  LOCKSTEP_TRY(const Manifest manifest, ReadManifest(*state_->store, step));
  return state_->LoadShards(manifest);
}

Result<std::optional<LoadedState>> Checkpointer::LoadFirst(
    const std::function<bool(const Manifest&)>& wanted) {
  LOCKSTEP_TRY(const std::vector<int64_t> steps, Steps());
  for (const int64_t step : steps) {
    const auto manifest = ReadManifest(*state_->store, step);
    if (manifest.ok() && wanted && !wanted(*manifest)) continue;
    auto loaded = manifest.ok() ? state_->LoadShards(*manifest) : Result<LoadedState>(manifest.error());
    if (loaded.ok()) return std::optional<LoadedState>(std::move(loaded).value());
    // Where the store is away, going on without its newest checkpoint would lose work.
    if (!IsDamage(loaded.error())) return loaded.error();
    log::Error("damaged checkpoint passed over", {{"step", step}, {"error", loaded.error().message}});
  }
  return std::optional<LoadedState>();
}

Result<std::optional<LoadedState>> Checkpointer::LoadNewest() { return LoadFirst(nullptr); }

Result<std::optional<LoadedState>> Checkpointer::Resume() {
  LOCKSTEP_TRY(std::optional<LoadedState> found, FindToResume());
  if (found && !state_->CountsItsEvaluations(found->manifest)) found->manifest.evaluations = {};
  return found;
}

Result<std::optional<LoadedState>> Checkpointer::FindToResume() {
  LOCKSTEP_TRY(auto own,
               LoadFirst([this](const Manifest& found) { return found.job_uid == state_->job.uid; }));
  if (own) return own;
  switch (state_->spec.resume.mode) {
    case api::ResumeMode::kNever: return std::optional<LoadedState>();
    case api::ResumeMode::kAuto: return LoadNewest();
    case api::ResumeMode::kStep: break;
  }
  auto loaded = Load(state_->spec.resume.step).WithContext("spec.checkpoint.resume");
  if (!loaded.ok()) return loaded.error();
  return std::optional<LoadedState>(std::move(loaded).value());
}

}  // namespace lockstep::checkpoint
