#include "runtime/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

class Csv : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& train, const std::string& test) const {
    ASSERT_TRUE(WriteFile(folder_ + "/train.csv", train).ok());
    ASSERT_TRUE(WriteFile(folder_ + "/test.csv", test).ok());
  }
  void ExpectRefused(const api::CsvSpec& spec, const std::string& field, const std::string& part) const {
    const auto sets = OpenCsv(folder_, spec);
    ASSERT_FALSE(sets.ok());
    EXPECT_EQ(sets.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sets.error().message, HasSubstr(field));
    EXPECT_THAT(sets.error().message, HasSubstr(part));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-csv-XXXXXX";
};

TEST_F(Csv, ReadsAndNormalisesColumns) {
  Write("a,kind,b\n1,0,5\n3,2,5\r\n\n", "a,kind,b\n 5 ,1,+6e0\n");
  const auto sets = OpenCsv(folder_, {.label_column = "kind"});
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 2);
  EXPECT_EQ(sets->train->classes(), 3);
  EXPECT_EQ(sets->train->sample_shape(), (std::vector<int64_t>{2}));
  const Batch train = sets->train->Get(std::vector<int64_t>{1, 0});
  EXPECT_TRUE(at::equal(train.inputs, torch::tensor({{1.0F, 0.0F}, {-1.0F, 0.0F}})));
  EXPECT_TRUE(at::equal(train.targets, torch::tensor({2, 0}, at::kLong)));
  // With the training lines' mean 2 and deviation 1; for a constant column the deviation counts as 1.
  const Batch test = sets->test->Get(std::vector<int64_t>{0});
  EXPECT_TRUE(at::equal(test.inputs, torch::tensor({{3.0F, 1.0F}})));
}

TEST_F(Csv, FindsTheLabelByNumberAndTakesAnotherDelimiter) {
  Write("0;1.5\n1;2.5\n", "1;2\n");
  const auto sets = OpenCsv(folder_, {.label_column = "0", .header = false, .delimiter = ";"});
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 2);
  EXPECT_TRUE(at::equal(sets->test->Get(std::vector<int64_t>{0}).targets, torch::tensor({1}, at::kLong)));
}

// They keep their positions, and do not contribute to mean and deviation.
TEST_F(Csv, ReportsWhichLinesAreCorruptWhereTheyAreSkipped) {
  Write("a,y,b\n1,0,5\n7,1,word\n3,2,5\n9,x,9\n9\n", "a,y,b\n5,1,6\n,1,6\n");
  ::testing::internal::CaptureStderr();
  const auto sets = OpenCsv(folder_, {.label_column = "y"}, api::OnCorruptRecord::kSkip);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(sets.ok()) << sets.error().ToString();
  EXPECT_EQ(sets->train->size(), 5);
  EXPECT_EQ(sets->train->classes(), 3);
  EXPECT_TRUE(at::equal(sets->train->labels(), torch::tensor({0, -1, 2, -1, -1}, at::kLong)));
  const Batch train = sets->train->Get(std::vector<int64_t>{4, 2, 1, 0, 3});
  EXPECT_EQ(train.corrupt, (std::vector<int64_t>{0, 2, 4}));
  const Batch good = train.WithoutCorrupt();
  EXPECT_TRUE(at::equal(good.inputs, torch::tensor({{1.0F, 0.0F}, {-1.0F, 0.0F}})));
  EXPECT_TRUE(at::equal(good.targets, torch::tensor({2, 0}, at::kLong)));
  EXPECT_EQ(good.left_out, 3);
  EXPECT_EQ(sets->test->Get(std::vector<int64_t>{0, 1}).corrupt, (std::vector<int64_t>{1}));
  EXPECT_THAT(log, HasSubstr("train.csv, line 3\",\"problem\":\"\\\"word\\\" is not a number"));
  for (const char* place : {"train.csv, line 5", "train.csv, line 6", "test.csv, line 3"})
    EXPECT_THAT(log, HasSubstr(place));
  Write("x,y\none,0\n", "x,y\n1,0\n");
  const auto none = OpenCsv(folder_, {.label_column = "y"}, api::OnCorruptRecord::kSkip);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("train.csv, line 2: all lines are corrupt"));
}

TEST_F(Csv, NamesFileAndLineOfWhatIsWrong) {
  const api::CsvSpec spec{.label_column = "y"};
  const std::string path = "spec.training.data.path";
  Write("x,y\n1,0\n", "x,y\n");
  ExpectRefused(spec, path, "test.csv, line 1: there are no samples");
  Write("x,y\n1,0\n2\n", "x,y\n1,0\n");
  ExpectRefused(spec, path, "train.csv, line 3: 1 columns, and 2 in the first line");
  Write("x,y\none,0\n", "x,y\n1,0\n");
  ExpectRefused(spec, path, "train.csv, line 2: \"one\" is not a number");
  for (const char* number : {"nan", "inf", "1e99", ""}) {
    Write(std::string("x,y\n") + number + ",0\n", "x,y\n1,0\n");
    ExpectRefused(spec, path, "is not a number");
  }
  Write("x,y\n1,0.5\n", "x,y\n1,0\n");
  ExpectRefused(spec, path, "train.csv, line 2: the label \"0.5\"");
  Write("x,y\n1,-1\n", "x,y\n1,0\n");
  ExpectRefused(spec, path, "train.csv, line 2: the label \"-1\"");
  Write("x,y\n1,0\n", "x,z,y\n1,2,0\n");
  ExpectRefused(spec, path, "train.csv and test.csv differ in their columns");
  Write("x,z,y\n1,2,0\n", "z,x,y\n1,2,0\n");
  ExpectRefused(spec, path, "train.csv and test.csv differ in their columns");
  Write("x,z\n1,0\n", "x,y\n1,0\n");
  ExpectRefused(spec, "spec.training.data.csv.labelColumn", "no column \"y\"");
  std::filesystem::remove(folder_ + "/train.csv");
  ExpectRefused(spec, path, "train.csv cannot be read");
}

}  // namespace
}  // namespace lockstep::data
