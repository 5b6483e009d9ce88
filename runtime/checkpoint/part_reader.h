#pragma once
// Reads parts of stored tensors and nothing else of a checkpoint: only the blocks of each shard that contain
// them, in ranges of a few MiB, several at a time. Each block is verified by its CRC-32 in the manifest. A
// shard of an earlier version without block sums is read completely and verified by its SHA-256. Any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/object_store.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct WantedPart {
  std::string tensor;      // name in the manifest
  int64_t begin = 0;       // bytes from the start of the tensor
  std::span<char> target;  // filled with the bytes from there on
};

// Returns the number of bytes read. The parts must not overlap. kDataLoss, kNotFound: the checkpoint is
// damaged, and the error says where. Any other error is that of the store. After an error the content of the
// targets is undefined.
[[nodiscard]] Result<int64_t> ReadParts(ObjectStore& store, const Manifest& manifest,
                                        const std::vector<WantedPart>& wanted);

}  // namespace lockstep::checkpoint
