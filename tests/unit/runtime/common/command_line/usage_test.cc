#include "runtime/common/command_line/usage.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace lockstep::command_line {
namespace {

struct ProgramToMisuse {
  ProgramToMisuse() {
    app.require_subcommand(1);
    app.fallthrough();
    app.add_option("--namespace,-n", text);
    CLI::App* run = app.add_subcommand("run", "Run it");
    run->add_option("FILE", text)->required();
    run->add_option("--rank", number)->check(MustNotBeNegative);
    run->add_option("--replicas", number)->check(CLI::Range(1, 64));
    app.add_subcommand("status", "Show it");
    app.add_subcommand("rum", "Hidden")->group("");
  }
  CLI::App app{"A program", "program"};
  std::string text;
  int number = 0;
};

TEST(Usage, ErrorsSayWhatWasMeantAndNameTheHelp) {
  const struct {
    std::vector<const char*> arguments;
    const char* command;
    const char* problem;
  } cases[] = {
      {{}, "program", "a command is required"},
      {{"stauts"}, "program", "unknown command \"stauts\": did you mean \"status\"?"},
      {{"dance"}, "program", "unknown command \"dance\""},
      {{"run", "job.yaml", "--replcas=3"},
       "program run",
       "unknown flag \"--replcas\": did you mean \"--replicas\"?"},
      {{"status", "--namspace", "team"},
       "program status",
       "unknown flag \"--namspace\": did you mean \"--namespace\"?"},
      {{"run", "--what"}, "program run", "unknown flag \"--what\""},
      {{"run"}, "program run", "FILE is required"},
      {{"run", "a.yaml", "b.yaml"}, "program run", "unexpected argument \"b.yaml\""},
      {{"run", "job.yaml", "--rank=-1"}, "program run", "--rank: must be 0 or more, not -1"},
      {{"run", "job.yaml", "--replicas=0"}, "program run", "--replicas: Value 0 not in range 1 to 64"},
  };
  for (const auto& test : cases) {
    ProgramToMisuse program;
    std::vector<const char*> arguments = test.arguments;
    arguments.insert(arguments.begin(), "/usr/bin/program");
    ::testing::internal::CaptureStderr();
    const auto code = ParseArguments(program.app, static_cast<int>(arguments.size()), arguments.data());
    const std::string command = test.command;
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              command + ": " + test.problem + "\nRun `" + command + " --help` for usage.\n");
    EXPECT_EQ(code, kUsageError) << test.problem;
  }
}

TEST(Usage, HelpIsNoError) {
  ProgramToMisuse program;
  const std::vector<const char*> arguments = {"program", "run", "--help"};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(ParseArguments(program.app, 3, arguments.data()), 0);
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("Run it"), std::string::npos);
}

TEST(Usage, ContinuesWithValidArguments) {
  ProgramToMisuse program;
  const std::vector<const char*> arguments = {"program", "run", "job.yaml", "--replicas=3"};
  EXPECT_EQ(ParseArguments(program.app, 4, arguments.data()), std::nullopt);
  EXPECT_EQ(program.number, 3);
}

}  // namespace
}  // namespace lockstep::command_line
