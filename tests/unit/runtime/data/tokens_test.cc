#include "runtime/data/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "runtime/common/base/file.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::string TwoBytes(const std::vector<int>& tokens) {
  std::string bytes;
  for (const int token : tokens) {
    bytes += static_cast<char>(token % 256);
    bytes += static_cast<char>(token / 256);
  }
  return bytes;
}

class Tokens : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, content).ok());
  }
  void ExpectRefused(const std::string& part) const {
    const auto sets = OpenTokens(folder_, 4, 256);
    ASSERT_FALSE(sets.ok());
    EXPECT_EQ(sets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path"));
    EXPECT_THAT(sets.error().message, HasSubstr(part));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-tokens-XXXXXX";
};

TEST_F(Tokens, CutsATextIntoSequencesAndTheirSuccessors) {
  Write("train.txt", "In the beginning");  // 16 bytes: three sequences of four and their successors
  Write("val.txt", "God created");
  const auto sets = OpenTokens(folder_, 4, 256);
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 3);
  EXPECT_EQ(sets->test->size(), 2);
  EXPECT_EQ(sets->train->classes(), 256);
  EXPECT_EQ(sets->train->sample_shape(), (std::vector<int64_t>{4}));
  const Batch batch = sets->train->Get(std::vector<int64_t>{2, 0});
  EXPECT_TRUE(
      at::equal(batch.inputs, torch::tensor({{'e', 'g', 'i', 'n'}, {'I', 'n', ' ', 't'}}, at::kLong)));
  EXPECT_TRUE(
      at::equal(batch.targets, torch::tensor({{'g', 'i', 'n', 'n'}, {'n', ' ', 't', 'h'}}, at::kLong)));
}

TEST_F(Tokens, ReadsNumbersOfTwoBytes) {
  Write("train.bin", TwoBytes({0, 50256, 3, 256, 1}));
  Write("val.bin", TwoBytes({1, 2, 3, 4, 5}));
  Write("train.txt", "not asked for");
  const auto sets = OpenTokens(folder_, 4, 50257);
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  const Batch batch = sets->train->Get(std::vector<int64_t>{0});
  EXPECT_TRUE(at::equal(batch.inputs, torch::tensor({{0, 50256, 3, 256}}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({{50256, 3, 256, 1}}, at::kLong)));
}

TEST_F(Tokens, NamesFileAndPlaceOfATokenThatIsNotInTheVocabulary) {
  Write("train.bin", TwoBytes({0, 1, 300, 2, 3}));
  Write("val.bin", TwoBytes({0, 1, 2, 3, 4}));
  const auto sets = OpenTokens(folder_, 4, 300);
  ASSERT_TRUE(sets.ok());
  try {
    (void)sets->train->Get(std::vector<int64_t>{0});
    FAIL() << "it was read";
  } catch (const std::out_of_range& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.bin: token 300 at byte 4"));
    EXPECT_THAT(error.what(), HasSubstr("vocabularySize"));
  }
}

TEST_F(Tokens, RefusesFilesThatHoldNoSample) {
  ExpectRefused("neither train.bin nor train.txt");
  Write("train.txt", "long enough");
  ExpectRefused("val.txt cannot be read");
  Write("val.txt", "");
  ExpectRefused("val.txt is empty");
  Write("val.txt", "four");
  ExpectRefused("val.txt has 4 tokens");
  Write("train.bin", "odd");
  ExpectRefused("train.bin has an odd number of bytes");
}

}  // namespace
}  // namespace lockstep::data
