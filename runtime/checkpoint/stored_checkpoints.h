#pragma once
// Reads what is stored below a URI: the checkpoints, their manifests, their shards verified by size and
// SHA-256; and removes checkpoints. The checkpointer and `lockstep checkpoint` use it. Any thread. Input that
// is read is not trusted: kDataLoss if it is damaged, kNotFound if it does not exist, kUnsupported for a
// newer format. Any other error is that of the store.

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

// Whether the checkpoint itself is damaged, so that another one may be intact. Otherwise the store failed,
// and it is unknown what is stored.
[[nodiscard]] bool IsDamage(const Error& error);

// The step whose folder contains the object; -1: none.
[[nodiscard]] int64_t StepOfObject(const std::string& name);

// All objects in the folder of a step.
struct StoredStep {
  int64_t step = 0;
  bool has_manifest = false;  // true: it is a checkpoint; false: a save is in progress or was interrupted
  std::vector<ObjectInfo> objects;  // the manifest first; names as in the store
};

// Newest first. Objects outside of step folders are ignored.
[[nodiscard]] std::vector<StoredStep> StepsAmong(const std::vector<ObjectInfo>& objects);
[[nodiscard]] Result<std::vector<StoredStep>> ListSteps(ObjectStore& store);

[[nodiscard]] Result<Manifest> ReadManifest(ObjectStore& store, int64_t step);

// The name of a shard's object in the store.
[[nodiscard]] std::string ObjectOf(int64_t step, const ShardEntry& shard);

// Describes which of the manifest's shards are missing in the listing or have another size; empty: the
// checkpoint is complete.
[[nodiscard]] std::vector<std::string> MissingFrom(const StoredStep& stored, const Manifest& manifest);

// The positions of a shard's tensors according to its header.
[[nodiscard]] std::vector<TensorPlace> PlacesIn(const SafetensorsHeader& header);
// Whether these are the tensors of the manifest, at the same positions.
[[nodiscard]] Result<void> CheckTensors(std::vector<TensorPlace> found, std::vector<TensorPlace> expected);

// Receives bytes of the object from `offset` on.
using TakePiece = std::function<Result<void>(int64_t offset, std::string_view piece)>;
// Reads the whole shard in pieces of a few MiB, one after another, so memory use is constant. The header is
// verified before the first piece is passed on, the SHA-256 after the last one: an error invalidates all
// pieces.
[[nodiscard]] Result<void> StreamShard(ObjectStore& store, const StoredStep& stored, const ShardEntry& shard,
                                       const TakePiece& take);

// Removes the manifest first, so that an interrupted removal leaves no checkpoint. Stops at the first object
// that cannot be removed; the error names it.
[[nodiscard]] Result<void> RemoveStep(ObjectStore& store, const StoredStep& stored);

}  // namespace lockstep::checkpoint
