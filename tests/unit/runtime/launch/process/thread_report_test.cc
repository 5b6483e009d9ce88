#include "runtime/launch/process/thread_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/launch/process/process.h"

namespace lockstep::launch {
namespace {

TEST(DescribeThreads, SaysThatAProcessIsStopped) {
  const auto pid = StartProcess({.arguments = {"/bin/sleep", "60"}});
  ASSERT_TRUE(pid.ok());
  KillProcess(*pid, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(*pid, &status, WUNTRACED), *pid);
  EXPECT_THAT(DescribeThreads(*pid), ::testing::HasSubstr(": T (stopped)"));
  KillProcess(*pid, SIGKILL);
  ASSERT_EQ(::waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(DescribeThreads(*pid), "");
}

}  // namespace
}  // namespace lockstep::launch
