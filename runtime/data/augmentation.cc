#include "runtime/data/augmentation.h"

#include <ATen/ATen.h>

#include "runtime/common/base/mix.h"

namespace lockstep::data {
namespace {

struct Change {
  int64_t top = 0;
  int64_t left = 0;
  bool mirrored = false;
};

Change ChangeOf(const api::AugmentationSpec& spec, uint64_t bits) {
  const auto places = static_cast<uint64_t>(2 * spec.crop_padding + 1);
  return {.top = static_cast<int64_t>((bits & 0xffffff) % places),
          .left = static_cast<int64_t>((bits >> 24 & 0xffffff) % places),
          .mirrored = spec.horizontal_flip && bits >> 63 != 0};
}

bool IsAnImage(std::span<const int64_t> shape) { return shape.size() == 3; }

}  // namespace

Result<Augmentation> Augmentation::Make(const api::AugmentationSpec& spec, int64_t seed,
                                        std::span<const int64_t> sample_shape) {
  if ((spec.horizontal_flip || spec.crop_padding > 0) && !IsAnImage(sample_shape)) {
    return Error{
        ErrorCode::kInvalidArgument,
        "spec.training.data.augmentation: changes images of channels, height and width, but a sample here "
        "has " +
            std::to_string(sample_shape.size()) + " dimensions; leave it out"};
  }
  return Augmentation(spec, seed);
}

at::Tensor Augmentation::Apply(const at::Tensor& images, int64_t step, int64_t begin) const {
  if (!spec_.horizontal_flip && spec_.crop_padding == 0) return images;
  const at::NoGradGuard no_grad;
  const int64_t padding = spec_.crop_padding;
  const at::Tensor padded = at::constant_pad_nd(images, {padding, padding, padding, padding});
  at::Tensor changed = at::empty_like(images);
  for (int64_t i = 0; i < images.size(0); ++i) {
    const Change change = ChangeOf(spec_, MixBits(static_cast<uint64_t>(seed_), static_cast<uint64_t>(step),
                                                  static_cast<uint64_t>(begin + i)));
    const at::Tensor crop =
        padded[i].narrow(1, change.top, images.size(2)).narrow(2, change.left, images.size(3));
    changed[i].copy_(change.mirrored ? crop.flip(2) : crop);
  }
  return changed;
}

}  // namespace lockstep::data
