#pragma once
// Random changes of training images, by spec.training.data.augmentation: a crop of the padded image at a
// random place, and a mirror image half of the time. What happens follows from (seed, step, place in the
// step), so that every process, world and repetition of a step sees the same, and a sample that is drawn
// often looks different each time. Pure; any thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {

class Augmentation {
 public:
  // The error names the field where samples of this shape are no images (channels, height, width).
  [[nodiscard]] static Result<Augmentation> Make(const api::AugmentationSpec& spec, int64_t seed,
                                                 std::span<const int64_t> sample_shape);

  // float32 [n, channels, height, width], of the places from `begin` on; what is padded is 0: a normalised
  // image's mean, or black.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& images, int64_t step, int64_t begin) const;

 private:
  Augmentation(const api::AugmentationSpec& spec, int64_t seed) : spec_(spec), seed_(seed) {}

  api::AugmentationSpec spec_;
  int64_t seed_;
};

}  // namespace lockstep::data
