#include "runtime/checkpoint/host_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

// On a device: cuda_test.
TEST(HostCopy, HasWhatWasThereWhenItWasTaken) {
  at::Tensor weight = at::ones({3, 4});
  const at::Tensor columns = at::arange(6).view({2, 3}).t();
  HostCopy copy({{"weight", weight}, {"columns", columns}}, nullptr);
  weight.add_(1);
  const auto& tensors = copy.Await();
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "weight");
  EXPECT_TRUE(tensors[0].tensor.eq(1).all().item<bool>());
  EXPECT_TRUE(tensors[1].tensor.is_contiguous());
  EXPECT_TRUE(tensors[1].tensor.equal(columns));
}

TEST(HostCopy, UsesTheMemoryOfASpareAgain) {
  HostCopy spare({{"weight", at::ones({3, 4})}, {"bias", at::ones({4})}}, nullptr);
  const void* const memory = spare.Await().front().tensor.const_data_ptr();
  HostCopy copy({{"weight", at::full({3, 4}, 2.0F)}, {"bias", at::full({5}, 3.0F)}}, &spare);
  const auto& tensors = copy.Await();
  EXPECT_EQ(tensors[0].tensor.const_data_ptr(), memory);
  EXPECT_TRUE(tensors[0].tensor.eq(2).all().item<bool>());
  EXPECT_EQ(tensors[1].tensor.numel(), 5) << "another layout: memory of its own";
}

}  // namespace
}  // namespace lockstep::checkpoint
