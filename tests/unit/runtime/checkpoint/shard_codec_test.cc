#include "runtime/checkpoint/shard_codec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

TEST(ShardCodec, FindsATensorInTheBytesOfAShard) {
  const at::Tensor weight = at::arange(6).view({2, 3}).to(at::kFloat);
  const ShardLayout layout = LayOut({{"weight", weight}, {"empty", at::ones({0, 4})}});
  const at::Tensor shard = at::zeros({layout.bytes}, at::kByte);
  ViewOf(shard, layout.places[0]).copy_(weight);
  EXPECT_TRUE(ViewOf(shard, layout.places[0]).equal(weight));
  EXPECT_TRUE(ViewOf(shard, layout.places[0]).is_alias_of(shard));
  EXPECT_EQ(ViewOf(shard, layout.places[1]).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(layout.places[0].dtype, DtypeOf(weight));
}

}  // namespace
}  // namespace lockstep::checkpoint
