// Files in a folder survive a loss of power: fsync is replaced here and records its calls.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/open_store.h"

namespace {

struct Synced {
  std::mutex mutex;
  std::vector<std::string> paths;
};

Synced& AllSynced() {
  static Synced synced;
  return synced;
}

}  // namespace

extern "C" int fsync(int fd) {
  std::array<char, 4096> path{};
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  const std::lock_guard lock(AllSynced().mutex);
  if (length > 0) AllSynced().paths.emplace_back(path.data(), static_cast<std::size_t>(length));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class FolderSyncTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    folder_ = std::filesystem::canonical(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::vector<std::string> TakeSynced() {
    const std::lock_guard lock(AllSynced().mutex);
    return std::exchange(AllSynced().paths, {});
  }
  std::string folder_ = ::testing::TempDir() + "lockstep-folder-sync-XXXXXX";
};

TEST_F(FolderSyncTest, SyncsTheFolderOfAnObjectAfterTheObject) {
  const auto store = std::move(OpenObjectStore("file://" + folder_)).value();
  const std::string step = folder_ + "/step-1";
  (void)TakeSynced();
  ASSERT_TRUE(store->Put("step-1/x", "1").ok());
  EXPECT_THAT(TakeSynced(), ElementsAre(folder_, StartsWith(step + "/x.tmp"), step)) << "the folder is new";
  ASSERT_TRUE(store->Put("step-1/y", "1").ok());
  EXPECT_THAT(TakeSynced(), ElementsAre(StartsWith(step + "/y.tmp"), step));
}

TEST_F(FolderSyncTest, SyncsWhatIsAboveTheFolderOfAJob) {
  (void)TakeSynced();
  ASSERT_TRUE(OpenObjectStore("file://" + folder_ + "/a/b").ok());
  const std::vector<std::string> synced = TakeSynced();
  ASSERT_GE(synced.size(), 2U);
  EXPECT_EQ(synced[0], folder_);
  EXPECT_EQ(synced[1], folder_ + "/a");
}

}  // namespace
}  // namespace lockstep::checkpoint
