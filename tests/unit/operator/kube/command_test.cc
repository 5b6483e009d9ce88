#include "operator/kube/command.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

Result<std::string> Shell(const std::string& script, Milliseconds timeout = std::chrono::seconds(20)) {
  return RunCommand({.words = {"sh", "-c", script}, .environment = {"HOME=elsewhere"}, .timeout = timeout});
}

TEST(RunCommand, TakesWhatItWritesAndGivesItsEnvironment) {
  const auto output = Shell("echo $HOME; cat");
  ASSERT_TRUE(output.ok()) << output.error().ToString();
  EXPECT_EQ(*output, "elsewhere\n") << "its environment wins over ours, and its input is empty";
}

TEST(RunCommand, SaysHowItFailed) {
  EXPECT_EQ(Shell("exit 3").error().message, "sh: it ended with 3");
  EXPECT_EQ(Shell("kill -9 $$").error().message, "sh: signal 9 ended it");
  EXPECT_EQ(Shell("exec sleep 60", Milliseconds(20)).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(Shell("exec >&-; exec sleep 60", Milliseconds(20)).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(Shell("exec yes").error().message, "sh: it wrote too much");
  EXPECT_EQ(RunCommand({.words = {"/no/such/program"}}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::kube
