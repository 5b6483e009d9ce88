#include "runtime/launch/process/memory_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/witness/page.h"

namespace lockstep::launch {
namespace {

TEST(MemoryFileBytes, AreThoseOfTheFilesWithTheName) {
  const auto first = witness::MakeMemoryFile("memory-files-test", std::string(1 << 20, 'x'));
  const auto second = witness::MakeMemoryFile("memory-files-test", "y");
  const auto other = witness::MakeMemoryFile("memory-files-test-2", "z");
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(MemoryFileBytes(::getpid(), "memory-files-test"), (1 << 20) + page) << "in whole pages";
  EXPECT_EQ(MemoryFileBytes(::getpid(), "another"), 0);
  EXPECT_EQ(MemoryFileBytes(0, "memory-files-test"), 0) << "there is no such process";
}

}  // namespace
}  // namespace lockstep::launch
