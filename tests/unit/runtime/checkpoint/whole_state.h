#pragma once
// The complete content of a checkpoint, read by a single rank.

#include <ATen/ATen.h>

#include <optional>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpointer.h"

namespace lockstep::checkpoint {

struct LoadedState {
  Manifest manifest;
  std::vector<NamedTensor> tensors;
};

inline Result<void> ReadAll(Checkpointer& checkpointer, const Manifest& manifest,
                            std::vector<NamedTensor>& tensors) {
  tensors.clear();
  std::vector<WantedPart> wanted;
  for (const ShardEntry& shard : manifest.shards) {
    for (TensorPlace place : shard.tensors) {
      place.offset = 0;
      const at::Tensor bytes = at::empty({place.bytes}, at::kByte);
      tensors.push_back({place.name, ViewOf(bytes, place)});
      wanted.push_back({place.name, 0, {static_cast<char*>(bytes.data_ptr()), bytes.nbytes()}});
    }
  }
  LOCKSTEP_TRY(checkpointer.Read(manifest, wanted));
  return {};
}

inline Result<LoadedState> Load(Checkpointer& checkpointer, int64_t step) {
  LoadedState loaded;
  LOCKSTEP_TRY(loaded.manifest, checkpointer.Find(step));
  LOCKSTEP_TRY(ReadAll(checkpointer, loaded.manifest, loaded.tensors));
  return loaded;
}

// The checkpoint from which the job begins.
inline Result<std::optional<LoadedState>> Resume(Checkpointer& checkpointer) {
  LoadedState loaded;
  LOCKSTEP_TRY(const std::optional<Manifest> found, checkpointer.Resume([&](const Manifest& manifest) {
    return ReadAll(checkpointer, manifest, loaded.tensors);
  }));
  if (!found.has_value()) return std::optional<LoadedState>();
  loaded.manifest = *found;
  return std::optional<LoadedState>(std::move(loaded));
}

}  // namespace lockstep::checkpoint
