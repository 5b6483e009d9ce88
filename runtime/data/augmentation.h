#pragma once
// Random changes of training images (spec.training.data.augmentation): a random crop of the padded image, and
// a horizontal flip with probability 1/2. They are a function of (seed, step, position in the step), so every
// process, world and repetition of a step gets the same images, and a sample that is drawn repeatedly looks
// different each time. Pure; any thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {

class Augmentation {
 public:
  // kInvalidArgument, naming the field, if samples of this shape are not images (channels, height, width).
  [[nodiscard]] static Result<Augmentation> Make(const api::AugmentationSpec& spec, int64_t seed,
                                                 std::span<const int64_t> sample_shape);

  // `images` is float32 [n, channels, height, width] for the positions from `begin` on. Padding is 0: the
  // mean of a normalised image, or black.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& images, int64_t step, int64_t begin) const;

 private:
  Augmentation(const api::AugmentationSpec& spec, int64_t seed) : spec_(spec), seed_(seed) {}

  api::AugmentationSpec spec_;
  int64_t seed_;
};

}  // namespace lockstep::data
