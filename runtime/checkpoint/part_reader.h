#pragma once
// Reads parts of stored tensors, and nothing else of a checkpoint: of each shard the blocks that they lie in,
// by ranges of a few MiB, several at a time, each block verified by its CRC-32 in the manifest. A shard of an
// earlier version, whose manifest has none, is read whole and verified by its SHA-256. Any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct WantedPart {
  std::string tensor;      // of the manifest
  int64_t begin = 0;       // bytes from the start of the tensor
  std::span<char> target;  // what is to be filled from there on
};

// Returns how many bytes were read. The parts do not overlap. kDataLoss, kNotFound: the checkpoint is
// damaged, and the error says where; any other error is the store's. After an error the targets hold
// anything.
[[nodiscard]] Result<int64_t> ReadParts(ObjectStore& store, const Manifest& manifest,
                                        const std::vector<WantedPart>& wanted);

}  // namespace lockstep::checkpoint
