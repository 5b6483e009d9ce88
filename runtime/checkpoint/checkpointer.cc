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

constexpr auto kShardLimit = 300s;  // rank 0 waits so long for another rank's shard

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

// Rank r of n writes the tensors whose middle byte falls into the r-th n-th of all bytes: contiguous,
// near-equal shares.
std::vector<NamedTensor> ShareOf(const Snapshot& snapshot) {
  double total = 0;
  for (const NamedTensor& named : snapshot.tensors) total += static_cast<double>(named.tensor.nbytes());
  std::vector<NamedTensor> share;
  double before = 0;
  for (const NamedTensor& named : snapshot.tensors) {
    const auto bytes = static_cast<double>(named.tensor.nbytes());
    const double middle = total > 0 ? (before + bytes / 2) / total : 0;
    const int owner = std::min(snapshot.world - 1, static_cast<int>(middle * snapshot.world));
    if (owner == snapshot.rank) {
      share.push_back(
          {named.name,
           named.tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous()});
    }
    before += bytes;
  }
  return share;
}

std::string EncodeShard(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorEntry> entries;
  uint64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const uint64_t bytes = named.tensor.nbytes();
    entries.push_back({named.name, NameOfType(named.tensor.scalar_type()), named.tensor.sizes().vec(), offset,
                       offset + bytes});
    offset += bytes;
  }
  std::string file = EncodeHeader(entries, {{"format", "pt"}});
  const std::size_t data = file.size();
  file.resize(data + offset);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::memcpy(file.data() + data + entries[i].begin, tensors[i].tensor.const_data_ptr(),
                tensors[i].tensor.nbytes());
  }
  return file;
}

Result<void> DecodeShard(std::string_view file, std::vector<NamedTensor>& tensors) {
  LOCKSTEP_TRY(const SafetensorsHeader header, ParseHeader(file));
  for (const TensorEntry& entry : header.tensors) {
    at::Tensor tensor = at::empty(entry.shape, TypeOfName(entry.dtype));
    std::memcpy(tensor.data_ptr(), file.data() + header.data_offset + entry.begin, entry.end - entry.begin);
    tensors.push_back({entry.name, std::move(tensor)});
  }
  return {};
}

struct PendingSave {
  Snapshot place;  // without tensors
  std::vector<NamedTensor> share;
  std::shared_ptr<ShardExchange> exchange;
  SteadyTime started;
};

std::string ShardKey(const Snapshot& place, int rank) {
  return "checkpoint/" + std::to_string(place.step) + "/" + std::to_string(rank);
}

std::string EncodeEntry(const ShardEntry& entry) {
  return DumpJson({{"name", entry.name}, {"bytes", entry.bytes}, {"sha256", entry.sha256}});
}

Result<ShardEntry> DecodeEntry(const std::string& text) {
  LOCKSTEP_TRY(const Json json, ParseJson(text));
  return ShardEntry{StringAt(json, {"name"}), IntAt(json, {"bytes"}), StringAt(json, {"sha256"})};
}

}  // namespace

struct Checkpointer::State {
  api::CheckpointSpec spec;
  protocol::JobIdentity job;
  Json training;
  std::unique_ptr<ObjectStore> store;
  const SystemClock clock{};

  std::mutex mutex;
  std::condition_variable_any changed;
  std::optional<PendingSave> waiting;  // GUARDED_BY(mutex)
  bool busy = false;                   // GUARDED_BY(mutex)
  std::vector<SaveOutcome> outcomes;   // GUARDED_BY(mutex)
  std::jthread thread;                 // last: it stops before the rest goes

  void Run(std::stop_token stop) {
    std::unique_lock lock(mutex);
    while (changed.wait(lock, stop, [this] { return waiting.has_value(); })) {
      const PendingSave save = std::move(*waiting);
      waiting.reset();
      busy = true;
      lock.unlock();
      SaveOutcome outcome = Write(save);
      lock.lock();
      busy = false;
      outcomes.push_back(std::move(outcome));
      changed.notify_all();
    }
  }

  SaveOutcome Write(const PendingSave& save) {
    SaveOutcome outcome{.step = save.place.step, .uri = store->UriOf(FolderOfStep(save.place.step))};
    const Result<int64_t> written = WriteAll(save);
    outcome.seconds = Seconds(clock.Steady() - save.started).count();
    if (written.ok()) {
      outcome.bytes = *written;
    } else {
      outcome.error = written.error();
    }
    return outcome;
  }

  // This rank's shard; on rank 0 then the manifest. Returns the bytes of all shards known here.
  Result<int64_t> WriteAll(const PendingSave& save) {
    const Snapshot& place = save.place;
    const std::string folder = FolderOfStep(place.step) + "/";
    const std::string content = EncodeShard(save.share);
    const ShardEntry mine{ShardName(place.rank, place.world, place.round),
                          static_cast<int64_t>(content.size()), Sha256(content)};
    LOCKSTEP_TRY(store->Put(folder + mine.name, content));
    if (place.rank != 0) {
      LOCKSTEP_TRY(save.exchange->Publish(ShardKey(place, place.rank), EncodeEntry(mine)));
      return mine.bytes;
    }
    Manifest manifest{.job_uid = job.uid,
                      .job_name = job.name,
                      .step = place.step,
                      .round = place.round,
                      .world = place.world,
                      .time = FormatTime(clock.Now()),
                      .shards = {mine},
                      .training = training};
    int64_t bytes = mine.bytes;
    for (int rank = 1; rank < place.world; ++rank) {
      LOCKSTEP_TRY(const std::string text, save.exchange->Wait(ShardKey(place, rank), kShardLimit));
      LOCKSTEP_TRY(ShardEntry entry, DecodeEntry(text));
      bytes += entry.bytes;
      manifest.shards.push_back(std::move(entry));
    }
    LOCKSTEP_TRY(store->Put(folder + std::string(kManifestName), EncodeManifest(manifest)));
    CollectGarbage(place.step);
    return bytes;
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
  auto state = std::make_unique<State>();
  state->spec = spec;
  state->job = job;
  state->training = training;
  LOCKSTEP_TRY(state->store, OpenObjectStore(spec.uri));
  LOCKSTEP_TRY(const auto objects, state->store->List());
  log::Info("checkpoint store reached", {{"uri", spec.uri}, {"objects", objects.size()}});
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(state)));
}

Checkpointer::Checkpointer(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::jthread([state = state_.get()](std::stop_token stop) { state->Run(stop); });
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Save(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
  PendingSave save{.place = {snapshot.step, snapshot.round, snapshot.rank, snapshot.world, {}},
                   .share = ShareOf(snapshot),
                   .exchange = std::move(exchange),
                   .started = state_->clock.Steady()};
  const std::lock_guard lock(state_->mutex);
  state_->waiting = std::move(save);
  state_->changed.notify_all();
}

Result<void> Checkpointer::Wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  const bool idle =
      state_->changed.wait_for(lock, limit, [this] { return !state_->busy && !state_->waiting; });
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
  const std::string folder = FolderOfStep(step) + "/";
  LOCKSTEP_TRY(const std::string text, state_->store->Get(folder + std::string(kManifestName)));
  LoadedState loaded{.uri = state_->store->UriOf(FolderOfStep(step))};
  LOCKSTEP_TRY(loaded.manifest, ParseManifest(text).WithContext(loaded.uri));
  for (const ShardEntry& shard : loaded.manifest.shards) {
    LOCKSTEP_TRY(const std::string content, state_->store->Get(folder + shard.name));
    if (static_cast<int64_t>(content.size()) != shard.bytes || Sha256(content) != shard.sha256) {
      return Error{ErrorCode::kDataLoss,
                   loaded.uri + "/" + shard.name + ": size or SHA-256 differ from the manifest"};
    }
    LOCKSTEP_TRY(DecodeShard(content, loaded.tensors).WithContext(shard.name));
  }
  return loaded;
}

Result<std::optional<LoadedState>> Checkpointer::LoadNewest() {
  LOCKSTEP_TRY(const std::vector<int64_t> steps, Steps());
  for (const int64_t step : steps) {
    auto loaded = Load(step);
    if (loaded.ok()) return std::optional<LoadedState>(std::move(loaded).value());
    const ErrorCode code = loaded.error().code;
    if (code != ErrorCode::kDataLoss && code != ErrorCode::kNotFound && code != ErrorCode::kUnsupported) {
      return loaded.error();  // the store is away: going on without its newest checkpoint would lose work
    }
    log::Error("damaged checkpoint passed over", {{"step", step}, {"error", loaded.error().message}});
  }
  return std::optional<LoadedState>();
}

}  // namespace lockstep::checkpoint
