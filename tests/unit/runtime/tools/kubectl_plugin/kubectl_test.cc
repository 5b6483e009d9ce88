#include "runtime/tools/kubectl_plugin/kubectl.h"

#include <gtest/gtest.h>

namespace lockstep::kubectl_plugin {
namespace {

// A shell in place of kubectl.
const Kubectl kShell("sh", {});

Result<std::string> Shell(const std::string& script) { return kShell.Run({"-c", script}); }

TEST(Kubectl, ReturnsWhatItWrites) {
  const auto output = Shell("cat; head -c 200000 /dev/zero | tr '\\0' a");
  ASSERT_TRUE(output.ok()) << output.error().message;
  EXPECT_EQ(*output, std::string(200'000, 'a')) << "its input is empty";
}

TEST(Kubectl, IsBlockedByNeitherOfItsOutputs) {
  EXPECT_FALSE(Shell("head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero; exit 1").ok());
}

TEST(Kubectl, GivesEachCommandTheFlags) {
  const auto output = Kubectl("echo", {"--context=a b"}).Run({"get", "pods"});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(*output, "get pods --context=a b\n");
}

TEST(Kubectl, SaysHowItFailed) {
  EXPECT_EQ(Shell("echo 'error: why' >&2; exit 1").error().message, "why");
  EXPECT_EQ(Shell("kill -9 $$").error().message, "signal 9 ended kubectl");
  EXPECT_EQ(Kubectl("/no/such/kubectl", {}).Run({"get"}).error().message,
            "/no/such/kubectl cannot be started: is it installed and in PATH?");
}

TEST(Kubectl, EndsAStreamAtItsDeadlineOrWhenThatIsEnough) {
  const auto all = [](std::string_view) { return true; };
  const auto late = kShell.Stream({"-c", "exec sleep 60"}, all, std::chrono::steady_clock::now());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
  std::string seen;
  const auto first = [&seen](std::string_view bytes) {
    seen += bytes;
    return false;
  };
  EXPECT_TRUE(kShell.Stream({"-c", "echo one; exec sleep 60"}, first).ok());
  EXPECT_EQ(seen, "one\n");
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
