#pragma once
// Custom samples for Lockstep: derive from Dataset, and export the class from a library (plugin.h).
// Shuffling, the distribution over ranks, resuming and prefetching are done by Lockstep.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Samples {
  at::Tensor inputs;   // float32 [n, …sample shape], on the CPU
  at::Tensor targets;  // int64 [n], classes in [0, classes())
};

// Which of the two sets to open, and the seed for its randomness: spec.training.seed.
struct DatasetInput {
  bool is_test = false;
  uint64_t seed = 0;
};

// Constructed once per process. The same id must give the same sample in every process, every time. Several
// threads may call Get concurrently. It may throw a std::exception, which ends the job with its message if it
// is thrown again. A std::system_error with an errno of an unavailable file system (EIO, ESTALE, ETIMEDOUT,
// …) is retried for spec.failurePolicy.storePatienceSeconds.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;  // of the test set 0 if there is no evaluation
  [[nodiscard]] virtual int64_t classes() const = 0;
  [[nodiscard]] virtual std::vector<int64_t> sample_shape() const = 0;  // without the batch dimension
  // All ids are in [0, size()). Returns one row per id, in their order.
  [[nodiscard]] virtual Samples Get(std::span<const int64_t> ids) const = 0;
  // int64 [size()], the class of each sample; `sampler: Weighted` needs it. Undefined: not known in advance.
  [[nodiscard]] virtual at::Tensor labels() const { return {}; }
};

}  // namespace lockstep
