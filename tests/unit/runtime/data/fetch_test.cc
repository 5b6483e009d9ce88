#include "runtime/data/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "runtime/common/base/file.h"
#include "tests/unit/runtime/data/memory_objects.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PartNumbers, CoverEveryByteOnce) {
  const PartNumbers numbers({{"empty", 0, ""}, {"one", 4, ""}, {"three", 9, ""}}, 4);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < numbers.count(); ++i) parts.push_back(numbers.At(i));
  EXPECT_THAT(parts, ElementsAre(Part{0, 0, 0}, Part{1, 0, 4}, Part{2, 0, 4}, Part{2, 4, 4}, Part{2, 8, 1}));
  EXPECT_EQ(numbers.Of(2), (PartNumbers::Range{2, 5}));
}

TEST(PartNumbers, FindThePartsOfABlockOfBytes) {
  const PartNumbers numbers({{"empty", 0, ""}, {"three", 9, ""}}, 4);
  EXPECT_EQ(numbers.Holding(1, 0, 1), (PartNumbers::Range{1, 2}));
  EXPECT_EQ(numbers.Holding(1, 3, 4), (PartNumbers::Range{1, 2}));
  EXPECT_EQ(numbers.Holding(1, 3, 5), (PartNumbers::Range{1, 3}));
  EXPECT_EQ(numbers.Holding(1, 0, 9), (PartNumbers::Range{1, 4}));
  EXPECT_EQ(numbers.Holding(0, 0, 0), (PartNumbers::Range{0, 1}));
}

std::string Content(std::size_t bytes) {
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 7 + i / 251);
  return content;
}

class FetchTest : public ::testing::Test {
 protected:
  FetchTest() : folder_(::testing::TempDir() + "fetch-XXXXXX") {
    LOCKSTEP_CHECK(::mkdtemp(folder_.data()) != nullptr, "no folder");
    options_.part_bytes = 100;
    options_.threads = 4;
    options_.retries.pause = [this](Milliseconds) { ++pauses_; };
    options_.fetched = [this](int64_t bytes) { fetched_ += bytes; };
    source_.contents = {{"large", Content(1050)}, {"train/a/1.jpg", Content(100)}, {"empty", ""}};
  }
  ~FetchTest() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove(folder_ + ".board");
  }

  Result<void> FetchWhatIsMissing() {
    const std::vector<RemoteObject> objects = *source_.List();
    const PartNumbers numbers(objects, options_.part_bytes);
    PartBoard board = PartBoard::Make(folder_ + ".board", numbers.count()).value();
    return Fetch(source_, {objects, numbers, folder_, board}, options_);
  }
  void ExpectAllThere() {
    for (const auto& [name, content] : source_.contents)
      EXPECT_TRUE(*ReadFile(folder_ + "/" + name) == content) << name;
    EXPECT_THAT(MissingIn(folder_, *source_.List()), IsEmpty());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      EXPECT_THAT(entry.path().string(), ::testing::Not(HasSubstr(".part"))) << "left over";
  }

  std::string folder_;
  MemoryObjects source_;
  FetchOptions options_;
  std::atomic<int> pauses_ = 0;
  std::atomic<int64_t> fetched_ = 0;
};

TEST_F(FetchTest, MakesFilesOfTheObjects) {
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  ExpectAllThere();
  EXPECT_EQ(fetched_, 1150);
  EXPECT_THAT(source_.reads, SizeIs(12)) << "11 parts of the large one, the image; nothing of an empty one";
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  EXPECT_THAT(source_.reads, SizeIs(12)) << "what is there is not read again";
}

TEST_F(FetchTest, TriesAgainAfterACut) {
  int cuts = 2;
  source_.on_read = [&](const std::string&, int64_t offset) -> Result<void> {
    if (offset == 300 && cuts-- > 0) return Error{ErrorCode::kUnavailable, "cut"};
    return {};
  };
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  ExpectAllThere();
  EXPECT_EQ(pauses_, 2);
  EXPECT_THAT(source_.reads, SizeIs(12));
}

TEST_F(FetchTest, GoesOnWhereABrokenOneStopped) {
  source_.on_read = [](const std::string&, int64_t offset) -> Result<void> {
    if (offset == 700) return Error{ErrorCode::kUnavailable, "cut"};
    return {};
  };
  options_.threads = 1;
  const Result<void> broken = FetchWhatIsMissing();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(pauses_, 5) << "and no more";
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/large"));
  source_.on_read = nullptr;
  source_.reads.clear();
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  ExpectAllThere();
  EXPECT_EQ(source_.reads.count({"large", 600}), 0U) << "it was there";
  EXPECT_EQ(source_.reads.count({"large", 700}), 1U);
}

TEST_F(FetchTest, BeginsAgainWhereTheBoardRecordsNothing) {
  {
    PartBoard board = PartBoard::Make(folder_ + ".board", 13).value();
    for (std::size_t part = 0; part < 13; ++part) board.SetThere(part);
  }
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  ExpectAllThere();
}

TEST_F(FetchTest, FetchesFirstWhatAReaderWaitsFor) {
  options_.threads = 1;
  std::optional<PartBoard> reader;
  source_.on_read = [&](const std::string&, int64_t) -> Result<void> {
    if (!reader.has_value()) {
      reader.emplace(*PartBoard::Open(folder_ + ".board", 13));
      reader->Want({8, 4});
    }
    return {};
  };
  ASSERT_TRUE(FetchWhatIsMissing().ok());
  ExpectAllThere();
  const std::vector<std::pair<std::string, int64_t>> begin(source_.order.begin(), source_.order.begin() + 4);
  EXPECT_THAT(begin, ElementsAre(std::pair("train/a/1.jpg", 0), std::pair("large", 300),
                                 std::pair("large", 700), std::pair("large", 0)));
}

TEST_F(FetchTest, RefusesAPartOfAnotherVersion) {
  options_.check_versions = true;
  options_.threads = 1;
  source_.on_read = [&](const std::string&, int64_t offset) -> Result<void> {
    if (offset == 500) source_.contents["large"][3] = 'X';
    return {};
  };
  const std::vector<RemoteObject> objects = *source_.List();
  const PartNumbers numbers(objects, options_.part_bytes);
  PartBoard board = PartBoard::Make(folder_ + ".board", numbers.count()).value();
  const Result<void> changed = Fetch(source_, {objects, numbers, folder_, board}, options_);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(board.IsThere(5)) << "bytes 400 to 500";
  EXPECT_FALSE(board.IsThere(6)) << "nobody reads what is of another version";
}

TEST_F(FetchTest, DoesNotRepeatWhatCannotHelp) {
  source_.on_read = [](const std::string& name, int64_t) -> Result<void> {
    return Error{ErrorCode::kForbidden, name + ": access denied"};
  };
  const Result<void> denied = FetchWhatIsMissing();
  ASSERT_FALSE(denied.ok());
  EXPECT_EQ(denied.error().code, ErrorCode::kForbidden);
  EXPECT_EQ(pauses_, 0);
}

TEST_F(FetchTest, EndsSoonWhereItIsStopped) {
  options_.retries.is_stopped = [this] { return fetched_ > 0; };
  const Result<void> stopped = FetchWhatIsMissing();
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST_F(FetchTest, NamesTheCacheThatCannotBeWritten) {
  ASSERT_TRUE(WriteFile(folder_ + "/train", "a file where a folder has to be").ok());
  const Result<void> failed = FetchWhatIsMissing();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(failed.error().message, HasSubstr("spec.training.data.cache: " + folder_ + "/train/a/1.jpg"));
}

}  // namespace
}  // namespace lockstep::data
