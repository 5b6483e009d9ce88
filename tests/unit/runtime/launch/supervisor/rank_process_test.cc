#include "runtime/launch/supervisor/rank_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <future>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// A shell script takes the place of lockstep-rank.
class RankProcessTest : public ::testing::Test {
 protected:
  RankProcessTest() : script_(::testing::TempDir() + "/rank-" + std::to_string(::getpid())) {}
  ~RankProcessTest() override { std::filesystem::remove(script_); }

  void Start(
      const std::string& body,
      std::function<void(protocol::FromRank)> on_message = [](const protocol::FromRank&) {}) {
    ASSERT_TRUE(WriteFile(script_, "#!/bin/sh\n" + body).ok());
    std::filesystem::permissions(script_, std::filesystem::perms::owner_all);
    auto started =
        RankProcess::Start({script_}, 0, {.on_message = std::move(on_message), .on_socket_end = [] {}});
    ASSERT_TRUE(started.ok()) << started.error().message;
    rank_ = std::move(*started);
  }
  int WaitForEnd() const {
    int status = 0;
    EXPECT_EQ(::waitpid(rank_->pid(), &status, 0), rank_->pid());
    return status;
  }

  const std::string script_;
  std::unique_ptr<RankProcess> rank_;
};

TEST_F(RankProcessTest, KeepsTheLastLinesOfStderr) {
  ::testing::internal::CaptureStderr();
  Start(
      "echo to stdout\nfor i in $(seq 3000); do echo line $i >&2; done\nprintf 'the end' >&2\nkill -9 $$\n");
  EXPECT_TRUE(WIFSIGNALED(WaitForEnd()));
  const std::string last = rank_->TakeLastLines();
  const std::string passed_on = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(last, ::testing::StartsWith("line 2982\n"));
  EXPECT_THAT(last, ::testing::EndsWith("\nline 3000\nthe end"));
  EXPECT_THAT(passed_on, ::testing::StartsWith("[local rank 0] line 1\n"));
  EXPECT_THAT(passed_on, ::testing::EndsWith("[local rank 0] line 3000\n[local rank 0] the end\n"));
}

TEST_F(RankProcessTest, KeepsTheLastLinesOfEachProgram) {
  ::testing::internal::CaptureStderr();
  std::promise<void> has_failed;
  Start(
      "echo first >&2\nprintf '{\"type\":\"finished\"}\\n' >&$LOCKSTEP_CONTROL_FD\n"
      "read line <&$LOCKSTEP_CONTROL_FD\necho second >&2\n",
      [&has_failed](const protocol::FromRank&) { has_failed.set_value(); });
  has_failed.get_future().wait();
  EXPECT_EQ(rank_->TakeLastLinesOfProgram(), "first");
  ASSERT_TRUE(rank_->Send(protocol::RankAssignment{.round = 5, .rank = 2}));
  (void)WaitForEnd();
  EXPECT_EQ(rank_->TakeLastLines(), "second");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[local rank 0] first\n[rank 2 round 5] second\n");
}

TEST_F(RankProcessTest, LabelsWhatComesAfterAnAssignmentWithItsPlace) {
  ::testing::internal::CaptureStdout();
  Start("read line <&$LOCKSTEP_CONTROL_FD\necho hello\n");
  ASSERT_TRUE(rank_->Send(protocol::RankAssignment{.round = 5, .rank = 2}));
  (void)WaitForEnd();
  EXPECT_EQ(rank_->TakeLastLines(), "") << "stdout is not stderr";
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "[rank 2 round 5] hello\n");
}

TEST_F(RankProcessTest, DoesNotWaitForAChildOfTheRankThatHoldsItsPipes) {
  ::testing::internal::CaptureStderr();
  Start("sleep 600 &\necho $! >&2\n");
  (void)WaitForEnd();
  auto last = std::async(std::launch::async, [this] { return rank_->TakeLastLines(); });
  const bool in_time = last.wait_for(300s) == std::future_status::ready;
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(in_time);
  KillProcess(std::stoi(last.get()), SIGKILL);
}

}  // namespace
}  // namespace lockstep::launch
