#include "runtime/checkpoint/stored_checkpoints.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/checkpoint/sha256.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;

Error DataLoss(const std::string& what) { return {ErrorCode::kDataLoss, what}; }

constexpr const char* kUnlikeTheManifest = "size or SHA-256 differ from the manifest";

const ObjectInfo* FindObject(const StoredStep& stored, const std::string& name) {
  const auto found = std::find_if(stored.objects.begin(), stored.objects.end(),
                                  [&](const ObjectInfo& object) { return object.name == name; });
  return found == stored.objects.end() ? nullptr : &*found;
}

Result<void> CheckSize(const StoredStep& stored, const std::string& name, int64_t bytes) {
  const ObjectInfo* object = FindObject(stored, name);
  if (object == nullptr) return Error{ErrorCode::kNotFound, "is missing"};
  return object->bytes == bytes ? Result<void>() : DataLoss(kUnlikeTheManifest);
}

// Reads the length field and the header of an object whose size matches the manifest.
Result<std::string> ReadHead(ObjectStore& store, const std::string& name, int64_t bytes) {
  std::string head(static_cast<std::size_t>(std::min<int64_t>(bytes, kLengthBytes)), '\0');
  LOCKSTEP_TRY(store.Read(name, 0, head));
  LOCKSTEP_TRY(const uint64_t data, DataOffset(head, static_cast<uint64_t>(bytes)));
  const std::size_t length = head.size();
  head.resize(data);
  LOCKSTEP_TRY(store.Read(name, static_cast<int64_t>(length), std::span(head).subspan(length)));
  return head;
}

Result<void> CheckHead(ObjectStore& store, const std::string& name, const ShardEntry& shard) {
  LOCKSTEP_TRY(const std::string head, ReadHead(store, name, shard.bytes));
  LOCKSTEP_TRY(const SafetensorsHeader header, ParseHeader(head, static_cast<uint64_t>(shard.bytes)));
  return CheckTensors(PlacesIn(header), shard.tensors);
}

}  // namespace

bool IsDamage(const Error& error) {
  return error.code == ErrorCode::kDataLoss || error.code == ErrorCode::kNotFound ||
         error.code == ErrorCode::kUnsupported;
}

int64_t StepOfObject(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? -1 : StepOfFolder(name.substr(0, slash));
}

std::vector<StoredStep> StepsAmong(const std::vector<ObjectInfo>& objects) {
  std::map<int64_t, StoredStep, std::greater<>> steps;
  for (const ObjectInfo& object : objects) {
    const int64_t step = StepOfObject(object.name);
    if (step < 0) continue;
    StoredStep& stored = steps[step];
    stored.step = step;
    const bool is_manifest = object.name.substr(object.name.find('/') + 1) == kManifestName;
    stored.has_manifest |= is_manifest;
    stored.objects.insert(is_manifest ? stored.objects.begin() : stored.objects.end(), object);
  }
  std::vector<StoredStep> newest_first;
  newest_first.reserve(steps.size());
  for (auto& [step, stored] : steps) newest_first.push_back(std::move(stored));
  return newest_first;
}

Result<std::vector<StoredStep>> ListSteps(ObjectStore& store) {
  LOCKSTEP_TRY(const std::vector<ObjectInfo> objects, store.List());
  return StepsAmong(objects);
}

Result<Manifest> ReadManifest(ObjectStore& store, int64_t step) {
  const std::string name = FolderOfStep(step) + "/" + std::string(kManifestName);
  LOCKSTEP_TRY(const std::string text, store.Get(name));
  LOCKSTEP_TRY(Manifest manifest, ParseManifest(text).WithContext(store.UriOf(name)));
  if (manifest.step != step) {
    return DataLoss(store.UriOf(name) + ": it is of step " + std::to_string(manifest.step));
  }
  return manifest;
}

std::string ObjectOf(int64_t step, const ShardEntry& shard) { return FolderOfStep(step) + "/" + shard.name; }

std::vector<std::string> MissingFrom(const StoredStep& stored, const Manifest& manifest) {
  std::vector<std::string> missing;
  for (const ShardEntry& shard : manifest.shards) {
    const ObjectInfo* object = FindObject(stored, ObjectOf(stored.step, shard));
    if (object == nullptr) {
      missing.push_back(shard.name + " is missing");
    } else if (object->bytes != shard.bytes) {
      missing.push_back(shard.name + " has " + std::to_string(object->bytes) + " bytes, not " +
                        std::to_string(shard.bytes));
    }
  }
  return missing;
}

std::vector<TensorPlace> PlacesIn(const SafetensorsHeader& header) {
  std::vector<TensorPlace> places;
  places.reserve(header.tensors.size());
  for (const TensorEntry& entry : header.tensors) {
    places.push_back({entry.name, entry.dtype, entry.shape,
                      static_cast<int64_t>(header.data_offset + entry.begin),
                      static_cast<int64_t>(entry.end - entry.begin)});
  }
  return places;
}

Result<void> CheckTensors(std::vector<TensorPlace> found, std::vector<TensorPlace> expected) {
  const auto by_name = [](const TensorPlace& a, const TensorPlace& b) { return a.name < b.name; };
  std::sort(found.begin(), found.end(), by_name);
  std::sort(expected.begin(), expected.end(), by_name);
  if (found != expected) return DataLoss("tensors differ from the manifest");
  return {};
}

Result<void> StreamShard(ObjectStore& store, const StoredStep& stored, const ShardEntry& shard,
                         const TakePiece& take) {
  const std::string name = ObjectOf(stored.step, shard);
  const std::string uri = store.UriOf(name);
  LOCKSTEP_TRY(CheckSize(stored, name, shard.bytes).WithContext(uri));
  LOCKSTEP_TRY(CheckHead(store, name, shard).WithContext(uri));
  Sha256Sum sum;
  std::string piece;
  for (int64_t offset = 0; offset < shard.bytes; offset += kPieceBytes) {
    piece.resize(static_cast<std::size_t>(std::min(kPieceBytes, shard.bytes - offset)));
    LOCKSTEP_TRY(store.Read(name, offset, piece));
    sum.Add(piece);
    LOCKSTEP_TRY(take(offset, piece));
  }
  if (sum.Finish() != shard.sha256) return DataLoss(kUnlikeTheManifest).WithContext(uri);
  return {};
}

Result<void> RemoveStep(ObjectStore& store, const StoredStep& stored) {
  for (const ObjectInfo& object : stored.objects) {
    LOCKSTEP_TRY(store.Delete(object.name).WithContext(store.UriOf(object.name)));
  }
  return {};
}

}  // namespace lockstep::checkpoint
