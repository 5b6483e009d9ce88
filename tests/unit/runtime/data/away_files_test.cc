// Files that are temporarily unreadable, as on a mounted file system whose server is away. The system itself
// fails: reading the first bytes of a process's memory ends with EIO.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/common/base/error_exception.h"
#include "runtime/data/csv.h"
#include "runtime/data/image_folder.h"
#include "runtime/data/npy.h"
#include "runtime/data/tokens.h"
#include "tests/unit/runtime/data/png_bytes.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kUnreadable = "/proc/self/mem";

class AwayFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string image = PngBytes({.width = 2, .height = 2, .colour = PngColour::kGrey}, "grey");
    for (const char* name : {"train/cat/1.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png"})
      Write(name, image);
    Write("train.csv", "label,size\n0,1\n1,2\n");
    Write("test.csv", "label,size\n0,1\n");
    Write("train.txt", "In the beginning");
    Write("val.txt", "God created");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, content).ok());
  }
  // The file comes back after `pauses`.
  void TakeAway(const std::string& name, Seconds pauses) {
    away_ = name;
    comes_back_after_ = pauses;
    std::filesystem::rename(folder_ + "/" + name, folder_ + "/.kept");
    std::filesystem::create_symlink(kUnreadable, folder_ + "/" + name);
  }
  Retries Patient() {
    return {.pause =
                [this](Milliseconds time) {
                  paused_ += time;
                  if (paused_ < comes_back_after_ || away_.empty()) return;
                  std::filesystem::rename(folder_ + "/.kept", folder_ + "/" + std::exchange(away_, ""));
                },
            .patience = Seconds(60),
            .store_is_away =
                [this](const std::optional<Error>& error) {
                  told_.push_back(error.has_value() ? error->message : "back");
                }};
  }
  api::TrainingSpec Spec(api::DataFormat format) const {
    api::TrainingSpec spec;
    spec.data.format = format;
    spec.data.path = folder_;
    spec.data.csv.label_column = "label";
    return spec;
  }
  CopyOptions Copying() {
    return {.fetch = {.retries = Patient()}, .alive = [this] { ++signs_of_life_; }};
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-away-XXXXXX";
  std::string away_;
  Seconds comes_back_after_{0};
  Seconds paused_{0};
  int signs_of_life_ = 0;
  std::vector<std::string> told_;
};

std::optional<Error> ThrownBy(const Dataset& dataset, int64_t id) {
  try {
    (void)dataset.Get(std::vector<int64_t>{id});
    return std::nullopt;
  } catch (const ErrorException& thrown) {
    return thrown.error();
  }
}

TEST_F(AwayFiles, AnImageIsReadAgainForAMinute) {
  const Datasets sets =
      OpenImageFolder(folder_, {.image_size = 2}, api::OnCorruptRecord::kFail, {.retries = Patient()})
          .value();
  const Batch before = sets.train->Get(std::vector<int64_t>{1, 0});
  TakeAway("train/dog/1.png", Seconds(50));
  EXPECT_TRUE(at::equal(sets.train->Get(std::vector<int64_t>{1, 0}).inputs, before.inputs));
  EXPECT_GE(paused_, Seconds(50));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("train/dog/1.png: Input/output error"), "back"));
}

// Neither the image, which could be skipped, nor the user, whose error would end the job, is responsible.
TEST_F(AwayFiles, AnImageThatStaysAwayBreaksTheRound) {
  for (const auto on_corrupt : {api::OnCorruptRecord::kFail, api::OnCorruptRecord::kSkip}) {
    const Datasets sets =
        OpenImageFolder(folder_, {.image_size = 2}, on_corrupt, {.retries = Patient()}).value();
    paused_ = {};
    TakeAway("train/dog/1.png", Seconds(1000));
    const std::optional<Error> error = ThrownBy(*sets.train, 1);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::kAborted);
    EXPECT_THAT(error->message, HasSubstr("spec.training.data.path: reading " + folder_));
    EXPECT_GE(paused_, Seconds(60));
    std::filesystem::rename(folder_ + "/.kept", folder_ + "/train/dog/1.png");
  }
}

// A file that was opened before its server went away remains stale, so it is opened again.
TEST_F(AwayFiles, TokensAreReadFromTheFileThatIsOpenedAgain) {
  const Datasets sets = OpenTokens(folder_, 4, 256, {.retries = Patient()}).value();
  const Batch before = sets.train->Get(std::vector<int64_t>{2, 0});
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry, error) != folder_ + "/train.txt") continue;
    const Fd unreadable(::open(kUnreadable, O_RDONLY | O_CLOEXEC));
    ASSERT_GE(::dup2(unreadable.get(), std::stoi(entry.path().filename().string())), 0);
  }
  const Batch after = sets.train->Get(std::vector<int64_t>{2, 0});
  EXPECT_TRUE(at::equal(after.inputs, before.inputs) && at::equal(after.targets, before.targets));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("train.txt cannot be read (Input/output error)"), "back"));
}

TEST_F(AwayFiles, ATokensFileThatWasCutIsNamed) {
  const Datasets sets = OpenTokens(folder_, 4, 256, {.retries = Patient()}).value();
  std::filesystem::resize_file(folder_ + "/train.txt", 3);
  const std::optional<Error> error = ThrownBy(*sets.train, 2);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kInternal);
  EXPECT_THAT(error->message, HasSubstr("train.txt was cut"));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(AwayFiles, OpeningWaitsForThem) {
  for (const char* name : {"train.csv", "test.csv"}) {
    paused_ = {};
    signs_of_life_ = 0;
    TakeAway(name, Seconds(40));
    const Result<Datasets> sets = OpenDatasets(Spec(api::DataFormat::kCsv), Copying());
    ASSERT_TRUE(sets.ok()) << sets.error().message;
    EXPECT_EQ(sets->train->size(), 2);
    EXPECT_GE(paused_, Seconds(40));
    EXPECT_GE(signs_of_life_, 40);
  }
}

// A pod that ends with this error is restarted; the job does not end.
TEST_F(AwayFiles, OpeningEndsWithAnErrorThatMayPass) {
  TakeAway("train.csv", Seconds(1000));
  const Result<Datasets> sets = OpenDatasets(Spec(api::DataFormat::kCsv), Copying());
  ASSERT_FALSE(sets.ok());
  EXPECT_EQ(sets.error().code, ErrorCode::kUnavailable);
  EXPECT_GE(paused_, Seconds(60));
}

TEST_F(AwayFiles, NoFormatTakesThemForDamaged) {
  struct Case {
    api::DataFormat format;
    const char* name;
  };
  for (const Case& c :
       {Case{api::DataFormat::kIdx, "train-labels-idx1-ubyte"},
        Case{api::DataFormat::kNpy, "train-inputs.npy"}, Case{api::DataFormat::kCsv, "train.csv"}}) {
    std::filesystem::remove(folder_ + "/" + c.name);
    std::filesystem::create_symlink(kUnreadable, folder_ + "/" + c.name);
    if (c.format == api::DataFormat::kIdx)
      Write("train-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\1\0\0\0\1\0\0\0\1x", 17));
    comes_back_after_ = Seconds(1000);
    const Result<Datasets> sets = OpenDatasets(Spec(c.format), Copying());
    ASSERT_FALSE(sets.ok()) << c.name;
    EXPECT_EQ(sets.error().code, ErrorCode::kUnavailable) << sets.error().message;
    EXPECT_THAT(sets.error().message,
                HasSubstr(std::string(c.name) + " cannot be read (Input/output error)"));
  }
}

}  // namespace
}  // namespace lockstep::data
