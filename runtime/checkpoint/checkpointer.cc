#include "runtime/checkpoint/checkpointer.h"

#include <ATen/ATen.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr auto kShardLimit = 120s;  // rank 0 waits so long for the shards of the others
constexpr auto kPatience = 1s;      // and looks so often whether the save was abandoned

std::string Sha256(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  LOCKSTEP_CHECK(
      EVP_Digest(content.data(), content.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1,
      "SHA-256 is not available");
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kHex[digest.at(i) >> 4U];
    text += kHex[digest.at(i) & 0xFU];
  }
  return text;
}

struct DtypeName {
  at::ScalarType type;
  const char* name;
};
constexpr DtypeName kDtypes[] = {{at::kFloat, "F32"},     {at::kDouble, "F64"}, {at::kHalf, "F16"},
                                 {at::kBFloat16, "BF16"}, {at::kLong, "I64"},   {at::kInt, "I32"},
                                 {at::kShort, "I16"},     {at::kChar, "I8"},    {at::kByte, "U8"},
                                 {at::kBool, "BOOL"}};

const char* NameOfType(at::ScalarType type) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.type == type) return entry.name;
  }
  LOCKSTEP_CHECK(false, std::string("no safetensors type for ") + at::toString(type));
}

at::ScalarType TypeOfName(const std::string& name) {
  for (const DtypeName& entry : kDtypes) {
    if (name == entry.name) return entry.type;
  }
  LOCKSTEP_CHECK(false, "ParseHeader lets only known types through: " + name);
}

std::vector<NamedTensor> ShareOf(const Snapshot& snapshot) {
  const std::vector<int> writers = WritersOf(snapshot.tensors, snapshot.world);
  std::vector<NamedTensor> share;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] != snapshot.rank) continue;
    const NamedTensor& named = snapshot.tensors[i];
    share.push_back(
        {named.name, named.tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous()});
  }
  return share;
}

struct Shard {
  std::string content;
  std::vector<TensorPlace> tensors;
};

Shard EncodeShard(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorEntry> entries;
  uint64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const uint64_t bytes = named.tensor.nbytes();
    entries.push_back({named.name, NameOfType(named.tensor.scalar_type()), named.tensor.sizes().vec(), offset,
                       offset + bytes});
    offset += bytes;
  }
  Shard shard{.content = EncodeHeader(entries, {{"format", "pt"}})};
  const std::size_t data = shard.content.size();
  shard.content.resize(data + offset);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = entries[i];
    const std::size_t bytes = entry.end - entry.begin;
    if (bytes > 0)
      std::memcpy(shard.content.data() + data + entry.begin, tensors[i].tensor.const_data_ptr(), bytes);
    shard.tensors.push_back({entry.name, entry.dtype, entry.shape, static_cast<int64_t>(data + entry.begin),
                             static_cast<int64_t>(bytes)});
  }
  return shard;
}

Error Damaged(const std::string& what) { return {ErrorCode::kDataLoss, what}; }

// Adds the shard's tensors, which must be those of the manifest.
Result<void> DecodeShard(std::string_view file, std::vector<TensorPlace> expected,
                         std::vector<NamedTensor>& tensors) {
  LOCKSTEP_TRY(const SafetensorsHeader header, ParseHeader(file));
  std::vector<TensorPlace> found;
  try {
    for (const TensorEntry& entry : header.tensors) {
      const std::size_t bytes = entry.end - entry.begin;
      const std::size_t offset = header.data_offset + entry.begin;
      at::Tensor tensor = at::empty(entry.shape, TypeOfName(entry.dtype));
      if (bytes > 0) std::memcpy(tensor.data_ptr(), file.data() + offset, bytes);
      tensors.push_back({entry.name, std::move(tensor)});
      found.push_back(
          {entry.name, entry.dtype, entry.shape, static_cast<int64_t>(offset), static_cast<int64_t>(bytes)});
    }
  } catch (const std::exception& exception) {  // a shape that LibTorch refuses, or no memory for it
    return Damaged(exception.what());
  }
  const auto by_name = [](const TensorPlace& a, const TensorPlace& b) { return a.name < b.name; };
  std::sort(found.begin(), found.end(), by_name);
  std::sort(expected.begin(), expected.end(), by_name);
  if (found != expected) return Damaged("other tensors than the manifest says");
  return {};
}

struct PendingSave {
  Snapshot place;  // without tensors
  std::vector<NamedTensor> share;
  std::shared_ptr<ShardExchange> exchange;
  SteadyTime started;
  std::stop_source stop;  // abandoned
};

std::string ShardKey(const Snapshot& place, int rank) {
  return "checkpoint/" + std::to_string(place.round) + "/" + std::to_string(place.step) + "/" +
         std::to_string(rank);
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
  const SystemClock clock{};
  bool history_fails = false;  // of the thread

  std::mutex mutex;
  std::condition_variable_any changed;
  std::optional<PendingSave> waiting;  // GUARDED_BY(mutex)
  std::vector<PendingSave> replaced;   // GUARDED_BY(mutex); without tensors, to be told to rank 0
  std::stop_source running;            // GUARDED_BY(mutex); of the save that is being written
  bool busy = false;                   // GUARDED_BY(mutex)
  std::vector<SaveOutcome> outcomes;   // GUARDED_BY(mutex)
  std::jthread thread;                 // last: it stops before the rest goes

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
      if (outcome && (!outcome->error || !save->stop.stop_requested()))
        outcomes.push_back(*std::move(outcome));
      changed.notify_all();
    }
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
    (void)save.exchange->Publish(ShardKey(save.place, save.place.rank), EncodeFailure(error));
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
      LOCKSTEP_TRY(const ShardEntry mine, shard);
      KeepHistory(save);
      return Commit(save, mine);
    }
    const std::string text = shard.ok() ? EncodeShardEntry(*shard) : EncodeFailure(shard.error());
    const auto published = save.exchange->Publish(ShardKey(save.place, save.place.rank), text);
    if (!shard.ok()) return shard.error();
    LOCKSTEP_TRY(published);
    return shard->bytes;
  }

  Result<ShardEntry> WriteShard(const PendingSave& save) {
    const Snapshot& place = save.place;
    Shard shard = EncodeShard(save.share);
    ShardEntry entry{ShardName(place.rank, place.world, place.round),
                     static_cast<int64_t>(shard.content.size()), Sha256(shard.content),
                     std::move(shard.tensors)};
    if (save.stop.stop_requested()) return Abandoned();
    LOCKSTEP_TRY(store->Put(FolderOfStep(place.step) + "/" + entry.name, shard.content));
    return entry;
  }

  // Rank 0: gathers what the others stored, then makes the checkpoint exist.
  Result<int64_t> Commit(const PendingSave& save, const ShardEntry& mine) {
    const Snapshot& place = save.place;
    Manifest manifest{.job_uid = job.uid,
                      .job_name = job.name,
                      .step = place.step,
                      .round = place.round,
                      .world = place.world,
                      .time = FormatTime(clock.Now()),
                      .evaluations = place.evaluations,
                      .shards = {mine},
                      .training = training};
    int64_t bytes = mine.bytes;
    for (int rank = 1; rank < place.world; ++rank) {
      LOCKSTEP_TRY(ShardEntry entry, WaitForShard(save, rank));
      bytes += entry.bytes;
      manifest.shards.push_back(std::move(entry));
    }
    if (save.stop.stop_requested()) return Abandoned();
    LOCKSTEP_TRY(
        store->Put(FolderOfStep(place.step) + "/" + std::string(kManifestName), EncodeManifest(manifest)));
    CollectGarbage(place.step);
    return bytes;
  }

  // No checkpoint needs it, so what goes wrong with it is said, once, and no more.
  void KeepHistory(const PendingSave& save) {
    if (save.place.history.empty() || save.stop.stop_requested()) return;
    const Result<void> written = WriteHistoryAndCatch(save);
    if (!std::exchange(history_fails, !written.ok()) && !written.ok())
      log::Warning("history not written", {{"error", written.error().message}});
  }

  Result<void> WriteHistoryAndCatch(const PendingSave& save) {
    try {
      return WriteHistory(save);
    } catch (const std::exception& exception) {  // no memory, say
      return Error{ErrorCode::kInternal, std::string(protocol::kHistoryName) + ": " + exception.what()};
    }
  }

  // A process knows what it took part in; what came before is there already.
  Result<void> WriteHistory(const PendingSave& save) {
    const std::string name(protocol::kHistoryName);
    const Result<std::string> text = store->Get(name);
    if (!text.ok() && text.error().code != ErrorCode::kNotFound) return text.error();
    const protocol::HistoryText stored = protocol::ReadHistory(text.ok() ? *text : "");
    if (!stored.problems.empty()) {
      log::Warning("damaged lines of the history passed over",
                   {{"uri", store->UriOf(name)}, {"first", stored.problems.front()}});
    }
    if (save.stop.stop_requested()) return {};
    return store->Put(name, protocol::EncodeHistory(protocol::Continue(stored.records, save.place.history)));
  }

  Result<ShardEntry> WaitForShard(const PendingSave& save, int rank) {
    while (!save.stop.stop_requested()) {
      const auto text = save.exchange->Wait(ShardKey(save.place, rank), kPatience);
      if (text.ok()) return DecodePublished(*text, rank);
      if (text.error().code != ErrorCode::kDeadlineExceeded) return text.error();
      if (clock.Steady() - save.started > kShardLimit) {
        return text.error().WithContext("rank " + std::to_string(rank) + " has not stored its shard");
      }
    }
    return Abandoned();
  }

  Result<Manifest> ReadManifest(int64_t step) {
    const std::string name = FolderOfStep(step) + "/" + std::string(kManifestName);
    LOCKSTEP_TRY(const std::string text, store->Get(name));
    LOCKSTEP_TRY(Manifest manifest, ParseManifest(text).WithContext(store->UriOf(name)));
    if (manifest.step != step) {
      return Damaged(store->UriOf(name) + ": it is of step " + std::to_string(manifest.step));
    }
    return manifest;
  }

  Result<LoadedState> LoadShards(const Manifest& manifest) {
    LoadedState loaded{.manifest = manifest, .uri = store->UriOf(FolderOfStep(manifest.step)), .tensors = {}};
    for (const ShardEntry& shard : manifest.shards) {
      const std::string name = FolderOfStep(manifest.step) + "/" + shard.name;
      LOCKSTEP_TRY(const std::string content, store->Get(name));
      if (static_cast<int64_t>(content.size()) != shard.bytes || Sha256(content) != shard.sha256) {
        return Damaged(store->UriOf(name) + ": size or SHA-256 differ from the manifest");
      }
      LOCKSTEP_TRY(DecodeShard(content, shard.tensors, loaded.tensors).WithContext(store->UriOf(name)));
    }
    return loaded;
  }

  // Keeps the newest keepLast complete checkpoints. The manifest goes first, so that what is left of an
  // interrupted deletion is no checkpoint. Shards without a manifest that are older than the newest good one
  // are leftovers.
  void CollectGarbage(int64_t newest) {
    const auto objects = store->List();
    if (!objects.ok())
      return log::Warning("old checkpoints not removed", {{"error", objects.error().message}});
    std::map<int64_t, std::vector<std::string>, std::greater<>> steps;
    std::set<int64_t> complete;
    for (const ObjectInfo& object : *objects) {
      const std::size_t slash = object.name.find('/');
      const int64_t step = slash == std::string::npos ? -1 : StepOfFolder(object.name.substr(0, slash));
      if (step < 0 || step > newest) continue;
      const bool is_manifest = object.name.substr(slash + 1) == kManifestName;
      if (is_manifest) complete.insert(step);
      auto& names = steps[step];
      names.insert(is_manifest ? names.begin() : names.end(), object.name);
    }
    int kept = 0;
    for (const auto& [step, names] : steps) {
      if (complete.contains(step) && kept++ < spec.keep_last) continue;
      for (const std::string& name : names) {
        if (const auto deleted = store->Delete(name); !deleted.ok()) {
          log::Warning("old checkpoint object not removed",
                       {{"name", name}, {"error", deleted.error().message}});
        }
      }
    }
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
    : state_(std::make_unique<State>()) {
  state_->spec = spec;
  state_->job = job;
  state_->training = training;
  state_->store = std::move(store);
  state_->thread = std::jthread([state = state_.get()](std::stop_token stop) { state->Run(stop); });
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
  LOCKSTEP_CHECK(snapshot.world == 1 || exchange != nullptr, "ranks that cannot meet cannot save together");
  PendingSave save{.place = {snapshot.step,
                             snapshot.round,
                             snapshot.rank,
                             snapshot.world,
                             {},
                             snapshot.evaluations,
                             snapshot.history},
                   .share = ShareOf(snapshot),
                   .exchange = std::move(exchange),
                   .started = state_->clock.Steady(),
                   .stop = {}};
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting && state_->waiting->place.rank != 0) {
    state_->waiting->share.clear();
    state_->replaced.push_back(std::move(*state_->waiting));
  }
  state_->waiting = std::move(save);
  state_->changed.notify_all();
}

void Checkpointer::Abandon() { state_->Abandon(); }

Result<void> Checkpointer::Wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  const bool idle = state_->changed.wait_for(
      lock, limit, [this] { return !state_->busy && !state_->waiting && state_->replaced.empty(); });
  return idle ? Result<void>()
              : Error{ErrorCode::kDeadlineExceeded,
                      "the checkpoint was not stored within " + std::to_string(limit.count()) + " ms"};
}

std::vector<SaveOutcome> Checkpointer::TakeOutcomes() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->outcomes, {});
}

Result<std::vector<int64_t>> Checkpointer::Steps() {
  LOCKSTEP_TRY(const auto objects, state_->store->List());
  std::vector<int64_t> steps;
  for (const ObjectInfo& object : objects) {
    const std::size_t slash = object.name.find('/');
    if (slash == std::string::npos || object.name.substr(slash + 1) != kManifestName) continue;
    if (const int64_t step = StepOfFolder(object.name.substr(0, slash)); step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<LoadedState> Checkpointer::Load(int64_t step) {
  LOCKSTEP_TRY(const Manifest manifest, state_->ReadManifest(step));
  return state_->LoadShards(manifest);
}

Result<std::optional<LoadedState>> Checkpointer::LoadFirst(
    const std::function<bool(const Manifest&)>& wanted) {
  LOCKSTEP_TRY(const std::vector<int64_t> steps, Steps());
  for (const int64_t step : steps) {
    const auto manifest = state_->ReadManifest(step);
    if (manifest.ok() && wanted && !wanted(*manifest)) continue;
    auto loaded = manifest.ok() ? state_->LoadShards(*manifest) : Result<LoadedState>(manifest.error());
    if (loaded.ok()) return std::optional<LoadedState>(std::move(loaded).value());
    const ErrorCode code = loaded.error().code;
    if (code != ErrorCode::kDataLoss && code != ErrorCode::kNotFound && code != ErrorCode::kUnsupported) {
      return loaded.error();  // the store is away: going on without its newest checkpoint would lose work
    }
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
