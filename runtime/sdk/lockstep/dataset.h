#pragma once
// Samples of your own for Lockstep: derive from Dataset, and offer it in a library (plugin.h). Which sample a
// rank takes when, shuffling, resuming and what is read ahead are not its matter.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Samples {
  at::Tensor inputs;   // float32 [n, …sample shape], on the CPU
  at::Tensor targets;  // int64 [n], classes in [0, classes())
};

// Of which set, and the seed for what is random in it: spec.training.seed.
struct DatasetInput {
  bool is_test = false;
  uint64_t seed = 0;
};

// Made once in each process. The same id gives the same sample in each process, each time; several threads
// may call Get at once. It may throw a std::exception, which ends the job with its words
// when it comes again; one that is a std::system_error with an errno of a file system that is away (EIO, ESTALE,
// ETIMEDOUT, …) is waited out for spec.failurePolicy.storePatienceSeconds.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;  // of the test set 0, where there is nothing to evaluate
  [[nodiscard]] virtual int64_t classes() const = 0;
  [[nodiscard]] virtual std::vector<int64_t> sample_shape() const = 0;  // without the batch dimension
  // Every id is in [0, size()). One row for each, in their order.
  [[nodiscard]] virtual Samples Get(std::span<const int64_t> ids) const = 0;
  // int64 [size()], the class of each: `sampler: Weighted` needs it. Undefined: not known beforehand.
  [[nodiscard]] virtual at::Tensor labels() const { return {}; }
};

}  // namespace lockstep
