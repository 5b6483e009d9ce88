#include "runtime/checkpoint/shard_codec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/stored_checkpoints.h"

namespace lockstep::checkpoint {
namespace {

TEST(ShardCodec, LaysEachTensorOutWhereItIsAligned) {
  const ShardLayout layout = LayOut({{"mask", at::ones({3}, at::kBool)},
                                     {"half", at::ones({1}, at::kHalf)},
                                     {"step", at::ones({}, at::kLong)},
                                     {"weight", at::ones({5})}});
  ASSERT_EQ(layout.places.size(), 4U);
  for (std::size_t i = 0; i < layout.places.size(); ++i) {
    EXPECT_EQ(layout.places[i].name, layout.tensors[i].name);
    EXPECT_EQ(layout.places[i].offset % layout.tensors[i].tensor.element_size(), 0) << layout.places[i].name;
  }
  EXPECT_EQ(layout.bytes, static_cast<int64_t>(layout.header.size()) + 8 + 20 + 2 + 3);
}

// As the safetensors of another program may be: its tensors in the order of their names.
at::Tensor ShardWithTensorsThatAreNotAligned(std::vector<TensorPlace>& places) {
  const std::string header =
      EncodeHeader({{"a", "U8", {1}, 0, 1}, {"b", "F32", {2}, 1, 9}, {"c", "U8", {2}, 9, 11}}, {});
  at::Tensor shard = at::empty({static_cast<int64_t>(header.size()) + 11}, at::kByte);
  auto* const bytes = static_cast<char*>(shard.data_ptr());
  header.copy(bytes, header.size());
  const std::array<float, 2> numbers = {1.5F, -2.5F};
  bytes[header.size()] = 7;
  std::memcpy(bytes + header.size() + 1, numbers.data(), sizeof numbers);
  bytes[header.size() + 9] = 8;
  bytes[header.size() + 10] = 9;
  const std::string_view file(bytes, static_cast<std::size_t>(shard.numel()));
  places = PlacesIn(*ParseHeader(file, file.size()));
  return shard;
}

TEST(ShardCodec, DecodesInPlaceWhatIsAlignedAndCopiesTheRest) {
  std::vector<TensorPlace> places;
  const at::Tensor shard = ShardWithTensorsThatAreNotAligned(places);
  std::vector<NamedTensor> tensors;
  ASSERT_TRUE(DecodeShard(shard, places, tensors).ok());
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].tensor.item<int>(), 7);
  EXPECT_TRUE(tensors[0].tensor.is_alias_of(shard));
  EXPECT_EQ(tensors[1].tensor[0].item<float>(), 1.5F);
  EXPECT_EQ(tensors[1].tensor[1].item<float>(), -2.5F);
  EXPECT_FALSE(tensors[1].tensor.is_alias_of(shard));
  EXPECT_EQ(tensors[2].tensor[1].item<int>(), 9);
}

TEST(ShardCodec, RefusesOtherTensorsThanTheManifestSays) {
  std::vector<TensorPlace> places;
  const at::Tensor shard = ShardWithTensorsThatAreNotAligned(places);
  places[1].shape = {2, 1};
  std::vector<NamedTensor> tensors;
  EXPECT_EQ(DecodeShard(shard, places, tensors).error().code, ErrorCode::kDataLoss);
  EXPECT_TRUE(tensors.empty());
}

}  // namespace
}  // namespace lockstep::checkpoint
