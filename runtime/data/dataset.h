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
  at::Tensor inputs;   // float32 [n, …sample shape]; of tokens int64 [n, length]
  at::Tensor targets;  // int64 [n], class indices; of tokens [n, length], the ones that follow
  // Rows, ascending, whose records are corrupt: nothing to learn from. Only where spec.data says Skip.
  std::vector<int64_t> corrupt{};
  int64_t left_out = 0;  // corrupt rows that are no longer there

  // From pinned memory the copy goes on beside the caller; what is queued on the device follows it.
  [[nodiscard]] Batch To(at::Device device) const {
    return {inputs.to(device, /*non_blocking=*/true), targets.to(device, /*non_blocking=*/true), corrupt,
            left_out};
  }
  // In memory that a GPU reads by itself; needs one.
  [[nodiscard]] Batch Pinned() const {
    return {inputs.pin_memory(), targets.pin_memory(), corrupt, left_out};
  }
  // The other rows, in their order; there may be none.
  [[nodiscard]] Batch WithoutCorrupt() const;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual int64_t classes() const = 0;
  [[nodiscard]] virtual std::vector<int64_t> sample_shape() const = 0;  // without the batch dimension
  // int64 [size()]: each sample's class, -1 of a corrupt record whose class is not known. Undefined where a
  // sample has none of its own, as a sequence of tokens.
  [[nodiscard]] virtual at::Tensor labels() const { return {}; }
  // Get does no more than copy numbers that lie in memory.
  [[nodiscard]] virtual bool is_in_memory() const { return false; }
  // Every id lies in [0, size).
  [[nodiscard]] virtual Batch Get(std::span<const int64_t> ids) const = 0;
};

struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  Fd in_use;  // of a local copy of remote data; LocalCopy::InUse
};

// What spec.data names. The error names the field ("spec.training.data.path: …") and what would be right. The
// seed makes synthetic samples, the model says how long a sequence of tokens is. Of remote data this waits
// for what is needed at once. The code says whose fault it is, as those of local_copy.h do.
[[nodiscard]] Result<Datasets> OpenDatasets(const api::TrainingSpec& spec, const CopyOptions& copying);
[[nodiscard]] Result<Datasets> OpenDatasets(
    const api::TrainingSpec& spec);  // shows no life, cannot be stopped

}  // namespace lockstep::data
