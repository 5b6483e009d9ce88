#include "runtime/launch/process/process.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>

#include "runtime/common/base/open_files.h"
#include "runtime/launch/process/reserved_port.h"
#include "runtime/launch/process/self_copy.h"

namespace lockstep::launch {
namespace {

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST(FindProgram, LooksWhereAShellWould) {
  const std::string folder = ::testing::TempDir() + "/find-program-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteFile(folder + "/tool", "#!/bin/sh\n").ok());
  EXPECT_FALSE(FindProgram("tool", folder).ok()) << "not executable";
  std::filesystem::permissions(folder + "/tool", std::filesystem::perms::owner_all);
  EXPECT_EQ(*FindProgram("tool", "/nowhere:" + folder + ":/bin"), folder + "/tool");
  EXPECT_EQ(*FindProgram(folder + "/tool", ""), folder + "/tool");
  const auto missing = FindProgram("no-such-tool", folder);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "command no-such-tool: not found in PATH, " + folder);
  std::filesystem::remove_all(folder);
}

TEST(KillGroup, ReachesWhatTheLeaderStartedAndLeftBehind) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  const auto pid = StartProcess({.arguments = {"/bin/sh", "-c", "sleep 600 & exit 0"},
                                 .stdout_fd = pipe->writing.get(),
                                 .own_group = true});
  ASSERT_TRUE(pid.ok());
  pipe->writing.Reset();
  EXPECT_EQ(WEXITSTATUS(WaitFor(*pid)), 0);
  KillGroup(*pid, SIGKILL);
  char byte = 0;
  EXPECT_EQ(::read(pipe->reading.get(), &byte, 1), 0) << "the pipe closes when the last of them is gone";
}

TEST(StartProcess, GivesAChildTheLimitOfOpenFilesThatWeWereStartedWith) {
  const rlimit at_start = OpenFileLimitAtStart();
  rlimit changed = at_start;
  changed.rlim_cur = at_start.rlim_cur - 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &changed), 0);
  const std::string test = "test $(ulimit -S -n) = " + std::to_string(at_start.rlim_cur);
  const auto pid = StartProcess({.arguments = {"/bin/sh", "-c", test}});
  ::setrlimit(RLIMIT_NOFILE, &at_start);
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(WEXITSTATUS(WaitFor(*pid)), 0);
}

TEST(StartProcess, GivesAChildNoOtherDescriptorThanTheOneThatIsNamed) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));  // as libraries open them
  const auto pipe = MakePipe();
  ASSERT_TRUE(listener.valid() && pipe.ok());
  const auto opened = [](const Fd& fd) { return "-e /proc/$$/fd/" + std::to_string(fd.get()); };
  const auto pid = StartProcess(
      {.arguments = {"/bin/sh", "-c", "test ! " + opened(listener) + " -a " + opened(pipe->writing)},
       .inherited_fd = pipe->writing.get()});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(WEXITSTATUS(WaitFor(*pid)), 0);
}

TEST(OwnCommand, IsThisProgram) {
  EXPECT_EQ(OwnCommand(1'000'000), std::vector{std::filesystem::read_symlink("/proc/self/exe").string()});
}

TEST(ReservedPort, IsExclusiveUntilItIsReleased) {
  auto first = ReservedPort::Reserve();
  auto second = ReservedPort::Reserve();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->number(), second->number());
  EXPECT_GE(first->number(), 20'000);
  EXPECT_LT(first->number(), 30'000);
}

TEST(ReservedPort, IsReservedForBothFamilies) {
  const auto reserved = ReservedPort::Reserve();
  ASSERT_TRUE(reserved.ok());
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_addr = in6addr_loopback;
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ipv6.sin6_port = ipv4.sin_port = htons(static_cast<uint16_t>(reserved->number()));
  const Fd with_ipv6(::socket(AF_INET6, SOCK_STREAM, 0));
  const Fd with_ipv4(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_NE(::bind(with_ipv6.get(), reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6), 0);
  EXPECT_NE(::bind(with_ipv4.get(), reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4), 0);
}

TEST(CopyRunningProgram, RunsFromTheFolderAlone) {
  const std::string folder = ::testing::TempDir() + "/self-copy-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  for (int i = 0; i < 2; ++i) {
    const auto copied = CopyRunningProgram(folder);
    ASSERT_TRUE(copied.ok()) << copied.error().message;
  }
  const auto pid = StartProcess({.arguments = {folder + "/ld.so", "--library-path", folder,
                                               folder + "/lockstep", "--gtest_list_tests"}});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(WEXITSTATUS(WaitFor(*pid)), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::launch
