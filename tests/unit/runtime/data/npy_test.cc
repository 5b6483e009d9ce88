#include "runtime/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

// As numpy.save writes it.
std::string Npy(const std::string& descr, const std::string& shape, const std::string& content,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.resize(118 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + content;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class NpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    Write("train-inputs",
          Npy("|u1", "(3, 2, 2)", std::string("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b", 12)));
    Write("train-targets", Npy("<i8", "(3,)", BytesOf<int64_t>({0, 2, 1})));
    Write("test-inputs", Npy("<f8", "(1, 2, 2)", BytesOf<double>({0.5, 1, 1.5, 2})));
    Write("test-targets", Npy("<i4", "(1,)", BytesOf<int32_t>({3})));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name + ".npy", content).ok());
  }
  void ExpectRefused(const std::string& part) const {
    const auto sets = OpenNpy(folder_);
    ASSERT_FALSE(sets.ok());
    EXPECT_EQ(sets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path"));
    EXPECT_THAT(sets.error().message, HasSubstr(part));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-npy-XXXXXX";
};

TEST_F(NpyTest, ReadsArraysOfAnyType) {
  const auto sets = OpenNpy(folder_);
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 3);
  EXPECT_EQ(sets->train->classes(), 4);
  EXPECT_EQ(sets->train->sample_shape(), (std::vector<int64_t>{2, 2}));
  const Batch train = sets->train->Get(std::vector<int64_t>{2, 0});
  EXPECT_TRUE(
      at::equal(train.inputs, torch::tensor({{{8.0F, 9.0F}, {10.0F, 11.0F}}, {{0.0F, 1.0F}, {2.0F, 3.0F}}})));
  EXPECT_TRUE(at::equal(train.targets, torch::tensor({1, 0}, at::kLong)));
  const Batch test = sets->test->Get(std::vector<int64_t>{0});
  EXPECT_TRUE(at::equal(test.inputs, torch::tensor({{{0.5F, 1.0F}, {1.5F, 2.0F}}})));
}

TEST_F(NpyTest, RefusesWhatItCannotRead) {
  const std::string labels = BytesOf<int64_t>({0, 2, 1});
  Write("train-targets", Npy("<i8", "(4,)", labels + std::string(8, '\0')));
  ExpectRefused("has 4 targets for 3 inputs");
  Write("train-targets", Npy("<i8", "(3,)", BytesOf<int64_t>({0, -2, 1})));
  ExpectRefused("has the label -2");
  Write("train-targets", Npy("<f8", "(3,)", labels));
  ExpectRefused("is not a list of integers");
  Write("train-targets", Npy("<c8", "(3,)", labels));
  ExpectRefused("has elements of '<c8'");
  Write("train-targets", Npy("<i8", "(3,)", labels, "True"));
  ExpectRefused("Fortran");
  Write("train-targets", Npy("<i8", "(3,)", labels.substr(1)));
  ExpectRefused("does not have the length");
  for (const char* shape : {"(9999999999999,)", "(3", "3", "()", "(-3,)", "(0,)", "(x,)"}) {
    Write("train-targets", Npy("<i8", shape, labels));
    ExpectRefused("is not a .npy file");
  }
  Write("train-targets", "no array");
  ExpectRefused("is not a .npy file");
  std::filesystem::remove(folder_ + "/train-targets.npy");
  ExpectRefused("cannot be read");
}

}  // namespace
}  // namespace lockstep::data
