#include "runtime/checkpoint/host_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/stand_in_devices.h"

namespace lockstep::checkpoint {
namespace {

std::map<std::string, at::Tensor> Decoded(HostCopy& copy) {
  const std::string_view content = copy.Await();
  at::Tensor shard = at::empty({static_cast<int64_t>(content.size())}, at::kByte);
  content.copy(static_cast<char*>(shard.data_ptr()), content.size());
  std::map<std::string, at::Tensor> by_name;
  for (const TensorPlace& place : copy.places()) by_name[place.name] = ViewOf(shard, place);
  return by_name;
}

// tests/gpu has the test on a device.
TEST(HostCopy, HasWhatWasThereWhenItWasTaken) {
  at::Tensor weight = at::ones({3, 4});
  const at::Tensor columns = at::arange(6).view({2, 3}).t();
  HostCopy copy({{"weight", weight}, {"columns", columns}}, nullptr);
  weight.add_(1);
  const auto tensors = Decoded(copy);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_TRUE(tensors.at("weight").eq(1).all().item<bool>());
  EXPECT_TRUE(tensors.at("columns").equal(columns));
}

TEST(HostCopy, TakesTensorsOfSeveralDevices) {
  const at::Tensor first = at::full({3}, 1.0F).to(testing::StandInDevice(0));
  const at::Tensor second = at::full({5}, 2.0F).to(testing::StandInDevice(2));
  const at::Tensor third = at::full({2}, 3.0F);
  HostCopy copy({{"first", first}, {"second", second}, {"third", third}}, nullptr);
  for (const at::Tensor& tensor : {first, second, third}) tensor.add_(1);
  const auto tensors = Decoded(copy);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors.at("first").eq(1).all().item<bool>());
  EXPECT_TRUE(tensors.at("second").eq(2).all().item<bool>());
  EXPECT_TRUE(tensors.at("third").eq(3).all().item<bool>());
}

TEST(HostCopy, UsesTheMemoryOfASpareAgain) {
  HostCopy spare({{"weight", at::ones({3, 4})}}, nullptr);
  const void* const memory = spare.Await().data();
  HostCopy copy({{"weight", at::full({3, 4}, 2.0F)}}, &spare);
  EXPECT_EQ(copy.Await().data(), memory);
  EXPECT_TRUE(Decoded(copy).at("weight").eq(2).all().item<bool>());
}

TEST(HostCopy, TakesMemoryOfItsOwnWhereTheSpareHasAnotherSize) {
  HostCopy spare({{"weight", at::ones({3, 4})}}, nullptr);
  HostCopy copy({{"weight", at::full({50, 4}, 3.0F)}}, &spare);
  EXPECT_TRUE(Decoded(copy).at("weight").eq(3).all().item<bool>());
}

}  // namespace
}  // namespace lockstep::checkpoint
