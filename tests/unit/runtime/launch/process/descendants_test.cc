#include "runtime/launch/process/descendants.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/launch/process/process.h"

namespace lockstep::launch {
namespace {

class EndDescendantsTest : public ::testing::Test {
 protected:
  void SetUp() override { AdoptOrphans(); }
  void TearDown() override {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
};

TEST_F(EndDescendantsTest, ReachesWhatHasLeftItsGroupAndItsSession) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  const auto leader = StartProcess({.arguments = {"/bin/sh", "-c", "setsid sh -c 'sleep 600; :' & exit 0"},
                                    .stdout_fd = pipe->writing.get(),
                                    .own_group = true});
  ASSERT_TRUE(leader.ok());
  pipe->writing.Reset();
  ASSERT_EQ(::waitpid(*leader, nullptr, 0), *leader);
  EXPECT_TRUE(EndDescendants(0, Milliseconds(60'000)).empty());
  char byte = 0;
  EXPECT_EQ(::read(pipe->reading.get(), &byte, 1), 0) << "the pipe closes when the last of them is gone";
}

TEST_F(EndDescendantsTest, SparesOneAndWhatItHasStarted) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  // Its shell and sleep: both keep the pipe open.
  const auto spared = StartProcess(
      {.arguments = {"/bin/sh", "-c", "sleep 600 & echo; wait"}, .stdout_fd = pipe->writing.get()});
  const auto other = StartProcess({.arguments = {"/bin/sleep", "600"}});
  ASSERT_TRUE(spared.ok() && other.ok());
  char byte = 0;
  ASSERT_EQ(::read(pipe->reading.get(), &byte, 1), 1);
  EXPECT_TRUE(Descends(*other, ::getpid()));
  EXPECT_TRUE(EndDescendants(*spared, Milliseconds(60'000)).empty());
  EXPECT_EQ(::waitpid(*other, nullptr, 0), *other);
  EXPECT_EQ(::waitpid(*spared, nullptr, WNOHANG), 0);
  EXPECT_TRUE(EndDescendants(0, Milliseconds(60'000)).empty());
  pipe->writing.Reset();
  EXPECT_EQ(::read(pipe->reading.get(), &byte, 1), 0);
}

}  // namespace
}  // namespace lockstep::launch
