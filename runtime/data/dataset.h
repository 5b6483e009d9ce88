#pragma once
// Labelled samples by number. Implementations are immutable after opening, so Get may be called from any
// thread, and deterministic: the same ids give the same tensors in every process.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {

struct CopyOptions;  // local_copy.h

struct Batch {
  at::Tensor inputs;   // float32 [n, …sample shape]; for tokens int64 [n, length]
  at::Tensor targets;  // int64 [n], class indices; for tokens [n, length], the tokens that follow
  // Rows with corrupt records, ascending; training ignores them. Only if spec.training.data.onCorruptRecord
  // is Skip.
  std::vector<int64_t> corrupt{};
  int64_t left_out = 0;  // corrupt rows that WithoutCorrupt removed

  // From pinned memory the copy is asynchronous; device work that is queued later waits for it.
  [[nodiscard]] Batch To(at::Device device) const {
    return {inputs.to(device, /*non_blocking=*/true), targets.to(device, /*non_blocking=*/true), corrupt,
            left_out};
  }
  // In page-locked memory, from which a GPU copies asynchronously. Needs a GPU.
  [[nodiscard]] Batch Pinned() const {
    return {inputs.pin_memory(), targets.pin_memory(), corrupt, left_out};
  }
  // The batch without its corrupt rows, in the same order; it may be empty.
  [[nodiscard]] Batch WithoutCorrupt() const;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual int64_t classes() const = 0;
  [[nodiscard]] virtual std::vector<int64_t> sample_shape() const = 0;  // without the batch dimension
  // int64 [size()]: the class of each sample, -1 for a corrupt record of unknown class. Undefined if samples
  // have no class, such as sequences of tokens.
  [[nodiscard]] virtual at::Tensor labels() const { return {}; }
  // Whether Get only copies numbers that are in memory.
  [[nodiscard]] virtual bool is_in_memory() const { return false; }
  // All ids must be in [0, size).
  [[nodiscard]] virtual Batch Get(std::span<const int64_t> ids) const = 0;
};

struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  Fd in_use;  // shared lock on the local copy of remote data; see LocalCopy::InUse
};

// Opens the data sets that spec.training.data names. Errors name the field ("spec.training.data.path: …") and
// what would be right; the error code says whether the user, the store or the machine is responsible (see
// local_copy.h). The seed generates synthetic samples; the model's spec determines the length of token
// sequences. For remote data this waits for the parts that are needed immediately.
[[nodiscard]] Result<Datasets> OpenDatasets(const api::TrainingSpec& spec, const CopyOptions& copying);
[[nodiscard]] Result<Datasets> OpenDatasets(
    const api::TrainingSpec& spec);  // reports no signs of life, cannot be stopped

}  // namespace lockstep::data
