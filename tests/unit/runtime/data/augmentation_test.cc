#include "runtime/data/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

namespace lockstep::data {
namespace {

constexpr std::array<int64_t, 3> kShape = {1, 4, 5};

Augmentation Make(const api::AugmentationSpec& spec, int64_t seed = 1) {
  return std::move(Augmentation::Make(spec, seed, kShape)).value();
}

// Equal images, in which no two pixels are equal.
at::Tensor Images(int64_t count) {
  return torch::arange(1, 21, at::kFloat).reshape({1, 1, 4, 5}).repeat({count, 1, 1, 1});
}

TEST(Augmentation, LeavesImagesAloneUnlessAsked) {
  const at::Tensor images = Images(3);
  EXPECT_TRUE(at::equal(Make({}).Apply(images, 0, 0), images));
}

TEST(Augmentation, MirrorsHalfOfTheImages) {
  const at::Tensor images = Images(1000);
  const at::Tensor changed = Make({.horizontal_flip = true}).Apply(images, 0, 0);
  int64_t mirrored = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const bool same = at::equal(changed[i], images[i]);
    ASSERT_TRUE(same || at::equal(changed[i], images[i].flip(2))) << i;
    if (!same) ++mirrored;
  }
  EXPECT_NEAR(static_cast<double>(mirrored), 500, 60);
}

TEST(Augmentation, CropsAtEveryPlaceOfThePaddedImage) {
  const at::Tensor image = Images(1);
  const at::Tensor padded = at::constant_pad_nd(image, {2, 2, 2, 2});
  std::vector<at::Tensor> crops;
  for (int64_t top = 0; top < 5; ++top) {
    for (int64_t left = 0; left < 5; ++left) crops.push_back(padded[0].narrow(1, top, 4).narrow(2, left, 5));
  }
  std::set<std::size_t> seen;
  const at::Tensor changed = Make({.crop_padding = 2}).Apply(Images(500), 0, 0);
  for (int64_t i = 0; i < 500; ++i) {
    const auto found = std::find_if(crops.begin(), crops.end(),
                                    [&](const at::Tensor& crop) { return at::equal(crop, changed[i]); });
    ASSERT_NE(found, crops.end()) << i;
    seen.insert(static_cast<std::size_t>(found - crops.begin()));
  }
  EXPECT_EQ(seen.size(), crops.size());
}

TEST(Augmentation, FollowsFromSeedStepAndPlaceAlone) {
  const api::AugmentationSpec spec{.horizontal_flip = true, .crop_padding = 2};
  const at::Tensor all = Make(spec).Apply(Images(100), 3, 0);
  EXPECT_TRUE(at::equal(Make(spec).Apply(Images(30), 3, 70), all.narrow(0, 70, 30)));
  EXPECT_FALSE(at::equal(Make(spec).Apply(Images(100), 4, 0), all));
  EXPECT_FALSE(at::equal(Make(spec, 2).Apply(Images(100), 3, 0), all));
}

TEST(Augmentation, RefusesWhatIsNoImage) {
  const std::array<int64_t, 1> row = {7};
  const auto made = Augmentation::Make({.horizontal_flip = true}, 1, row);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, ::testing::StartsWith("spec.training.data.augmentation: "));
  EXPECT_TRUE(Augmentation::Make({}, 1, row).ok());
}

}  // namespace
}  // namespace lockstep::data
