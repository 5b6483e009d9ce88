#include "runtime/data/local_copy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/common/base/error_exception.h"
#include "tests/support/eventually.h"
#include "tests/unit/runtime/data/memory_objects.h"

namespace lockstep::data {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::Eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

TEST(IsPlainName, LeadsNowhereElse) {
  for (const char* name : {"train.csv", "train/cat/1.jpg", "a..b"}) EXPECT_TRUE(IsPlainName(name)) << name;
  for (const char* name : {"", "/etc/passwd", "train/../../x", "train//x", "train/.", "train/"})
    EXPECT_FALSE(IsPlainName(name)) << name;
  EXPECT_FALSE(IsPlainName("train/" + std::string(250, 'x')));
}

TEST(VersionOf, FollowsFromNamesSizesAndVersions) {
  const std::vector<RemoteObject> objects = {{"a", 1, "e1"}, {"b", 2, "e2"}};
  EXPECT_EQ(VersionOf(objects), VersionOf({{"a", 1, "e1"}, {"b", 2, "e2"}}));
  EXPECT_NE(VersionOf(objects), VersionOf({{"a", 1, "e1"}, {"c", 2, "e2"}}));
  EXPECT_NE(VersionOf(objects), VersionOf({{"a", 1, "e1"}, {"b", 3, "e2"}}));
  EXPECT_NE(VersionOf(objects), VersionOf({{"a", 1, "e1"}, {"b", 2, "e3"}}));
}

class LocalCopyTest : public ::testing::Test {
 protected:
  LocalCopyTest() : cache_(::testing::TempDir() + "cache-XXXXXX") {
    LOCKSTEP_CHECK(::mkdtemp(cache_.data()) != nullptr, "no folder");
    spec_.format = api::DataFormat::kCsv;
    spec_.path = "s3://bucket/some/table/";
    spec_.cache = cache_;
    source_.contents = {{"train.csv", std::string(1000, 'a')}, {"test.csv", "b"}, {"other", "c"}};
    options_.fetch.part_bytes = 100;
    // No test waits for this time: it only avoids a busy loop of requests while the store is away.
    options_.fetch.retries.pause = [](Milliseconds) { std::this_thread::sleep_for(1ms); };
  }
  ~LocalCopyTest() override { fs::remove_all(cache_); }

  Result<std::unique_ptr<LocalCopy>> Open(MemoryObjects& source) {
    return LocalCopy::Open(spec_, std::make_unique<MemoryConnection>(source), options_);
  }
  // With complete content.
  Result<std::unique_ptr<LocalCopy>> Make() {
    LOCKSTEP_TRY(std::unique_ptr<LocalCopy> copy, Open(source_));
    if (spec_.format == api::DataFormat::kCsv) return copy;
    LOCKSTEP_TRY(copy->WaitFor(AllOf(*copy)));
    return copy;
  }
  static std::vector<Stretch> AllOf(const LocalCopy& copy) {
    std::vector<Stretch> all;
    for (const RemoteObject& object : copy.objects()) all.push_back({.object = object.name});
    return all;
  }
  Error ErrorOf() {
    const auto copy = Make();
    LOCKSTEP_CHECK(!copy.ok(), "no error");
    return copy.error();
  }
  std::vector<std::string> Versions() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(cache_ + "/bucket/some"))
      if (entry.is_directory()) found.push_back(entry.path().string());
    return found;
  }

  std::string cache_;
  api::DataSpec spec_;
  MemoryObjects source_;
  CopyOptions options_;
};

TEST_F(LocalCopyTest, HoldsWhatTheFormatOpens) {
  const auto copy = Make();
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  EXPECT_THAT((*copy)->folder(), ::testing::StartsWith(cache_ + "/bucket/some/table@"));
  EXPECT_TRUE(*ReadFile((*copy)->folder() + "/train.csv") == source_.contents["train.csv"]);
  EXPECT_TRUE(*ReadFile((*copy)->folder() + "/test.csv") == "b");
  EXPECT_FALSE(fs::exists((*copy)->folder() + "/other")) << "no format csv asks for it";
}

TEST_F(LocalCopyTest, TakesTheFirstNameThatIsThere) {
  spec_.format = api::DataFormat::kTokens;
  source_.contents = {{"train.txt", "some text"}, {"val.txt", "more"}};
  const auto copy = Make();
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  EXPECT_TRUE(fs::exists((*copy)->folder() + "/train.txt"));
}

TEST_F(LocalCopyTest, OfImagesIsAllThatIsListed) {
  spec_.format = api::DataFormat::kImageFolder;
  source_.contents = {{"train/cat/1.jpg", "1"},
                      {"train/dog/2.jpg", "2"},
                      {"test/cat/3.jpg", "3"},
                      {"train/cat/.hidden", "x"},
                      {"readme.txt", "x"}};
  const auto copy = Make();
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  EXPECT_EQ(*ReadFile((*copy)->folder() + "/train/dog/2.jpg"), "2");
  EXPECT_FALSE(fs::exists((*copy)->folder() + "/readme.txt"));
  EXPECT_FALSE(fs::exists((*copy)->folder() + "/train/cat/.hidden"));
  EXPECT_THAT(source_.reads, SizeIs(3));
}

TEST_F(LocalCopyTest, RefusesNamesThatLeadOutOfTheCache) {
  spec_.format = api::DataFormat::kImageFolder;
  source_.contents = {{"train/cat//etc/passwd", "1"}};
  EXPECT_THAT(ErrorOf().message, HasSubstr("which cannot be a file name; rename it"));
}

TEST_F(LocalCopyTest, IsFetchedOnceByAllThatShareTheCache) {
  std::atomic<int> ready = 0;
  const auto work = [&] {
    const auto copy = Make();
    EXPECT_TRUE(copy.ok()) << copy.error().ToString();
    EXPECT_TRUE(*ReadFile((*copy)->folder() + "/train.csv") == source_.contents["train.csv"]);
    ++ready;
  };
  {
    std::vector<std::jthread> ranks;
    for (int i = 0; i < 4; ++i) ranks.emplace_back(work);
  }
  EXPECT_EQ(ready, 4);
  EXPECT_THAT(source_.reads, SizeIs(11)) << "10 parts and a small object";
}

TEST_F(LocalCopyTest, ShowsLifeWhileItArrives) {
  std::atomic<int> signs = 0;
  options_.alive = [&] { ++signs; };
  ASSERT_TRUE(Make().ok());
  EXPECT_GE(signs, 1);
}

TEST_F(LocalCopyTest, GivesAHolderUpThatMakesNoProgress) {
  const std::string folder = (*Make())->folder();
  fs::remove(folder + "/train.csv");
  const Fd holder(::open((folder + "/.parts").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(holder.get(), LOCK_EX), 0);
  options_.longest_silence = Seconds(0.02);
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              HasSubstr("nothing arrived for 0.02 s; end the process that holds " + folder + "/.parts"));
}

TEST_F(LocalCopyTest, RefusesAnObjectThatChangesMeanwhile) {
  source_.on_read = [&](const std::string&, int64_t offset) -> Result<void> {
    if (offset == 500) source_.contents["train.csv"][3] = 'X';  // of the same size
    return {};
  };
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kConflict);
  EXPECT_THAT(error.message, HasSubstr("s3://bucket/some/table/train.csv has changed while it was fetched"));
  EXPECT_THAT(Versions(), IsEmpty()) << "parts of both are of no use";
  source_.on_read = nullptr;
  EXPECT_TRUE(Make().ok());
}

TEST_F(LocalCopyTest, RefusesAnObjectThatBecomesShorter) {
  source_.on_read = [&](const std::string&, int64_t) -> Result<void> {
    source_.contents["train.csv"].resize(50);
    return {};
  };
  EXPECT_THAT(ErrorOf().message, HasSubstr("has changed while it was fetched"));
}

TEST_F(LocalCopyTest, RemovesUnusedOlderVersions) {
  const std::string first = (*Make())->folder();  // and released again
  source_.contents["train.csv"] = "second";
  const auto second = Make();
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(Versions(), ElementsAre((*second)->folder()));
  source_.contents["train.csv"] = "third";
  const auto third = Make();
  EXPECT_THAT(Versions(), ::testing::UnorderedElementsAre((*second)->folder(), (*third)->folder()))
      << "one is in use";
  EXPECT_EQ(*ReadFile((*second)->folder() + "/train.csv"), "second");
}

TEST_F(LocalCopyTest, NamesWhatTheStoreLacks) {
  source_.contents.erase("test.csv");
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      error.message,
      HasSubstr("spec.training.data.path: s3://bucket/some/table/ has no test.csv; format csv needs it"));
}

TEST_F(LocalCopyTest, SaysHowMuchRoomTheCacheLacks) {
  source_.listed_bytes["train.csv"] = int64_t{1} << 60;
  options_.fetch.part_bytes = int64_t{1} << 40;
  const Error error = ErrorOf();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("spec.training.data.cache: s3://bucket/some/table/ needs"));
  EXPECT_THAT(error.message, HasSubstr("give it a larger volume"));
  EXPECT_THAT(source_.reads, IsEmpty());
}

TEST_F(LocalCopyTest, NamesACacheThatCannotBeMade) {
  spec_.cache = "/dev/null/cache";
  EXPECT_THAT(ErrorOf().message, HasSubstr("spec.training.data.cache: /dev/null/cache"));
}

// Two mapped files: ten parts of one, all of the other.
class ReadAheadTest : public LocalCopyTest {
 protected:
  ReadAheadTest() {
    spec_.format = api::DataFormat::kTokens;
    for (int i = 0; i < 1000; ++i) text_ += static_cast<char>(i * 7 + i / 251);
    source_.contents = {{"train.txt", text_}, {"val.txt", "some text"}};
    options_.fetch.threads = 2;
  }

  static std::array<Stretch, 1> Bytes(int64_t offset, int64_t bytes) {
    return {{{"train.txt", offset, bytes}}};
  }
  static std::string ReadFrom(const LocalCopy& copy, int64_t offset, std::size_t bytes) {
    std::string content(bytes, '\0');
    const Fd file = copy.OpenFile("train.txt");
    EXPECT_EQ(::pread(file.get(), content.data(), bytes, offset), static_cast<ssize_t>(bytes));
    return content;
  }

  std::string text_;
};

TEST_F(ReadAheadTest, WaitsOnlyForThePartsThatAreRead) {
  source_.Hold("train.txt", 300);
  const auto copy = Open(source_);
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  ASSERT_TRUE((*copy)->WaitFor(Bytes(850, 150)).ok());
  EXPECT_TRUE(ReadFrom(**copy, 850, 150) == text_.substr(850));
  EXPECT_FALSE(fs::exists((*copy)->folder() + "/train.txt")) << "it is not whole";
  std::atomic<bool> is_there = false;
  std::jthread reader([&] {
    EXPECT_TRUE((*copy)->WaitFor(Bytes(299, 2)).ok());
    is_there = true;
  });
  ASSERT_TRUE((*copy)->WaitFor(Bytes(0, 300)).ok());
  EXPECT_FALSE(is_there) << "nobody has sent it";
  source_.ReleaseAll();
  reader.join();
  EXPECT_TRUE(ReadFrom(**copy, 250, 100) == text_.substr(250, 100));
}

TEST_F(ReadAheadTest, FetchesFirstWhatAReaderNeeds) {
  std::atomic<bool> waits = false;
  options_.alive = [&] { waits = true; };
  options_.fetch.threads = 1;
  source_.Hold("train.txt", 0);
  const auto copy = Open(source_);
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  ASSERT_TRUE(Eventually([&] { return source_.IsHolding(); }));
  std::jthread reader([&] { EXPECT_TRUE((*copy)->WaitFor(Bytes(750, 100)).ok()); });
  EXPECT_TRUE(Eventually([&] { return waits.load(); }));
  source_.ReleaseAll();
  reader.join();
  ASSERT_TRUE((*copy)->WaitFor(AllOf(**copy)).ok());
  const std::vector<std::pair<std::string, int64_t>> begin(source_.order.begin(), source_.order.begin() + 4);
  EXPECT_THAT(begin, ElementsAre(std::pair("train.txt", 0), std::pair("train.txt", 700),
                                 std::pair("train.txt", 800), std::pair("train.txt", 100)));
}

// A separate process, killed while it downloads for both.
TEST_F(ReadAheadTest, GoesOnWhereTheFetchingProcessDies) {
  options_.fetch.threads = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    source_.Hold("train.txt", 500);
    const auto copy = Open(source_);
    (void)(*copy)->WaitFor(AllOf(**copy));
    ::_exit(0);
  }
  const auto fetches = [&] {
    for (const std::string& folder :
         fs::exists(cache_ + "/bucket/some") ? Versions() : std::vector<std::string>())
      if (fs::exists(folder + "/train.txt.partial")) return true;
    return false;
  };
  ASSERT_TRUE(Eventually(fetches));
  const auto copy = Open(source_);
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  EXPECT_TRUE((*copy)->WaitFor(Bytes(0, 500)).ok());
  EXPECT_THAT(source_.ReadsSoFar(), IsEmpty()) << "the other one fetches";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE((*copy)->WaitFor(AllOf(**copy)).ok());
  EXPECT_TRUE(*ReadFile((*copy)->folder() + "/train.txt") == text_);
  EXPECT_THAT(source_.ReadsSoFar(), SizeIs(6)) << "five parts and the small object, nothing again";
}

TEST_F(ReadAheadTest, RefusesAnObjectThatChangesToAllWhoReadIt) {
  options_.fetch.threads = 1;
  source_.Hold("train.txt", 500);
  auto copy = Open(source_);
  auto other = Open(source_);
  ASSERT_TRUE(copy.ok() && other.ok());
  ASSERT_TRUE((*other)->WaitFor(Bytes(0, 500)).ok());
  source_.on_read = [&](const std::string&, int64_t) -> Result<void> {
    source_.contents["train.txt"][3] = 'X';
    return {};
  };
  source_.ReleaseAll();
  for (const auto& reader : {copy->get(), other->get()}) {
    const Result<void> refused = reader->WaitFor(Bytes(500, 100));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message,
                HasSubstr("s3://bucket/some/table/train.txt has changed while it was fetched"));
  }
  copy->reset();  // notifies readers before the folder is removed
  EXPECT_THAT(Versions(), IsEmpty());
}

TEST_F(ReadAheadTest, ReportsToReadersThatTheStoreRefuses) {
  std::atomic<ErrorCode> code = ErrorCode::kForbidden;
  source_.on_read = [&](const std::string&, int64_t offset) -> Result<void> {
    if (offset == 300) return Error{code, "train.txt: no"};
    return {};
  };
  const auto copy = Open(source_);
  ASSERT_TRUE(copy.ok()) << copy.error().ToString();
  const auto thrown = [&] {
    try {
      (*copy)->Need(Bytes(300, 1));
    } catch (const ErrorException& error) {
      return error.error().code;
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(thrown(), ErrorCode::kForbidden);
  code = ErrorCode::kUnavailable;
  EXPECT_EQ(thrown(), ErrorCode::kAborted) << "the round is at an end, and the next one asks again";
  source_.on_read = nullptr;
  (*copy)->Need(Bytes(300, 1));
  EXPECT_TRUE(ReadFrom(**copy, 300, 100) == text_.substr(300, 100));
}

}  // namespace
}  // namespace lockstep::data
