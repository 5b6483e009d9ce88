#pragma once
// What is stored below a URI: which checkpoints there are, their manifests, their shards verified by size and
// SHA-256, and their removal. The checkpointer and `lockstep checkpoint` use it. Any thread. What is read
// counts as hostile: kDataLoss where it is damaged, kNotFound where it is not there, kUnsupported for a newer
// format; any other error is the store's.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

// The checkpoint's own fault: another may be sound. Else the store's, and nobody knows what is there.
[[nodiscard]] bool IsDamage(const Error& error);

// Of the objects that CheckWritable writes and removes again.
inline constexpr std::string_view kProbePrefix = "write-probe-";

// In whose folder it lies; -1: in none.
[[nodiscard]] int64_t StepOfObject(const std::string& name);

// All that lies in the folder of a step.
struct StoredStep {
  int64_t step = 0;
  bool has_manifest = false;        // it is a checkpoint; else a save is under way, or was broken off
  std::vector<ObjectInfo> objects;  // the manifest first; names as the store's
};

// Newest first. Objects outside of such folders are not ours.
[[nodiscard]] std::vector<StoredStep> StepsAmong(const std::vector<ObjectInfo>& objects);
[[nodiscard]] Result<std::vector<StoredStep>> ListSteps(ObjectStore& store);

[[nodiscard]] Result<Manifest> ReadManifest(ObjectStore& store, int64_t step);

// The name of a shard's object in the store.
[[nodiscard]] std::string ObjectOf(int64_t step, const ShardEntry& shard);

// What the listing lacks of the manifest's shards, or has in another size, in words; empty: it is complete.
[[nodiscard]] std::vector<std::string> MissingFrom(const StoredStep& stored, const Manifest& manifest);

// Where the tensors of a shard lie, as its header says.
[[nodiscard]] std::vector<TensorPlace> PlacesIn(const SafetensorsHeader& header);
// Whether these are the tensors that the manifest says, at the same places.
[[nodiscard]] Result<void> CheckTensors(std::vector<TensorPlace> found, std::vector<TensorPlace> expected);

// Bytes of the object from `offset` on.
using TakePiece = std::function<Result<void>(int64_t offset, std::string_view piece)>;
// The whole shard in pieces of a few MiB, one after another, so that memory does not grow with it. The header
// is verified before the first piece is given away, the SHA-256 after the last: an error takes all back.
[[nodiscard]] Result<void> StreamShard(ObjectStore& store, const StoredStep& stored, const ShardEntry& shard,
                                       const TakePiece& take);

// The manifest first, so that what is left of a removal that was interrupted is no checkpoint. Ends at the
// first object that cannot be removed, which the error names.
[[nodiscard]] Result<void> RemoveStep(ObjectStore& store, const StoredStep& stored);

}  // namespace lockstep::checkpoint
