#include "runtime/common/base/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep {
namespace {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  AvailableMemoryTest() : folder_(::testing::TempDir() + "/group-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~AvailableMemoryTest() override { std::filesystem::remove_all(folder_); }
  void Write(const char* name, const char* text) const {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, text).ok());
  }

  const std::string folder_;
};

TEST_F(AvailableMemoryTest, OfTheMachineIsWhatTheKernelSays) {
  EXPECT_EQ(AvailableBytesOf("MemTotal:  100 kB\nMemFree:  5 kB\nMemAvailable:   40 kB\n"), 40'960);
  EXPECT_EQ(AvailableBytesOf("MemTotal: 100 kB\n"), std::nullopt);
  EXPECT_TRUE(AvailableBytes().has_value()) << "of this machine";
}

TEST_F(AvailableMemoryTest, OfAGroupIsItsLimitWithoutWhatItUses) {
  Write("memory.max", "1000\n");
  Write("memory.current", "700\n");
  EXPECT_EQ(AvailableBytesOfGroup(folder_), 300);
  Write("memory.stat", "anon 400\nfile 300\ninactive_file 200\nactive_file 100\n");
  EXPECT_EQ(AvailableBytesOfGroup(folder_), 500) << "the cache of files that nobody reads is free";
  Write("memory.current", "1300\n");
  EXPECT_EQ(AvailableBytesOfGroup(folder_), 0);
}

TEST_F(AvailableMemoryTest, OfAGroupWithoutALimitIsNotKnown) {
  EXPECT_EQ(AvailableBytesOfGroup(folder_), std::nullopt);
  Write("memory.max", "max\n");
  Write("memory.current", "700\n");
  EXPECT_EQ(AvailableBytesOfGroup(folder_), std::nullopt);
}

}  // namespace
}  // namespace lockstep
