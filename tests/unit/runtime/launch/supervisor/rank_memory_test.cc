#include "runtime/launch/supervisor/rank_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/common/base/resident_memory.h"
#include "runtime/launch/process/process.h"
#include "runtime/witness/page.h"

namespace lockstep::launch {
namespace {

TEST(MemoryOfRank, IsThatOfTheLargestProcessThatWasStartedForIt) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  // A shell that starts a larger one, as `lockstep program` starts a script. That one is there until it is killed below.
  const std::string larger = "value=$(head -c 50000000 /dev/zero | tr '\\0' x); echo; sleep 600; : $value";
  const auto rank = StartProcess({.arguments = {"/bin/sh", "-c", "sh -c \"$0\"; :", larger},
                                  .stdout_fd = pipe->writing.get(),
                                  .own_group = true});
  ASSERT_TRUE(rank.ok());
  char byte = 0;
  EXPECT_EQ(::read(pipe->reading.get(), &byte, 1), 1);
  const double of_shell = ResidentBytes(*rank).value_or(0);
  const auto memory = MemoryOfRank(*rank, ProcessTable::Read());
  KillGroup(*rank, SIGKILL);
  EXPECT_EQ(::waitpid(*rank, nullptr, 0), *rank);
  EXPECT_FALSE(MemoryOfRank(*rank, ProcessTable::Read()).has_value());
  ASSERT_TRUE(memory.has_value());
  EXPECT_LT(of_shell, 25e6);
  EXPECT_GT(memory->resident_bytes, 50e6);
  EXPECT_EQ(memory->checkpoint_bytes, 0);
}

TEST(MemoryOfRank, HasItsCheckpointsInAddition) {
  const auto before = MemoryOfRank(::getpid(), {});
  const auto segment = witness::MakeMemoryFile(kCheckpointMemory, std::string(1 << 20, 'x'));
  const auto after = MemoryOfRank(::getpid(), {});
  ASSERT_TRUE(before.has_value() && segment.ok() && after.has_value());
  EXPECT_EQ(after->checkpoint_bytes - before->checkpoint_bytes, 1 << 20);
}

}  // namespace
}  // namespace lockstep::launch
