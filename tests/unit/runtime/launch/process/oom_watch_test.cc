#include "runtime/launch/process/oom_watch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::launch {
namespace {

TEST(OomKillsOf, ReadsTheCounterOfThisGroupAndNotItsNeighbours) {
  EXPECT_EQ(OomKillsOf("low 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n"), 2);
  EXPECT_EQ(OomKillsOf("low 0\n"), 0);
  EXPECT_EQ(OomKillsOf(""), 0);
}

TEST(OomWatch, SeesEachRiseOnce) {
  const std::string file = ::testing::TempDir() + "/memory.events";
  ASSERT_TRUE(WriteFile(file, "oom_kill 4\n").ok());
  OomWatch watch(file);
  EXPECT_FALSE(watch.TookSomething()) << "that was before its time";
  ASSERT_TRUE(WriteFile(file, "oom_kill 5\n").ok());
  EXPECT_TRUE(watch.TookSomething());
  EXPECT_FALSE(watch.TookSomething());
  std::filesystem::remove(file);
}

TEST(OomWatch, KnowsNothingWithoutTheFile) {
  OomWatch watch("");
  EXPECT_FALSE(watch.TookSomething());
}

}  // namespace
}  // namespace lockstep::launch
