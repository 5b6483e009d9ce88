#include "runtime/common/command_line/completion.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace lockstep::command_line {
namespace {

struct ProgramToComplete {
  ProgramToComplete() {
    app.fallthrough();
    app.add_flag("--verbose", flag, "Say more");
    app.add_option("--context", text)->group("");
    CLI::App* run = app.add_subcommand("run", "Run a file");
    run->add_option("FILE", text);
    run->add_option("-o,--output", text, "How it is written")->check(CLI::IsMember({"json", "yaml"}));
    run->add_option("--replicas", number, "How many");
    run->add_option("--folder", text, "Where");
    CLI::App* remove = app.add_subcommand("rm", "Remove jobs");
    remove->add_option("JOB", texts);
    remove->add_option_group("what")->add_flag("--all", flag, "All of them");
    app.add_subcommand("worker", "Internal")->group("");
  }
  CLI::App app{"A program", "program"};
  std::string text;
  std::vector<std::string> texts;
  int number = 0;
  bool flag = false;
};

std::string Completions(const std::vector<std::string>& words) {
  const ProgramToComplete program;
  return CompletionsFor(program.app, words, [](const std::string& argument) {
    return argument == "JOB" ? std::optional(std::vector<std::string>{"small", "smaller", "large"})
                             : std::nullopt;
  });
}

TEST(CompletionsFor, AreTheCommandsThatHelpShows) {
  EXPECT_EQ(Completions({""}), "run\tRun a file\nrm\tRemove jobs\n:4\n");
  EXPECT_EQ(Completions({"ru"}), "run\tRun a file\n:4\n");
  EXPECT_EQ(Completions({"w"}), ":4\n");
  EXPECT_EQ(Completions({}), Completions({""}));
}

TEST(CompletionsFor, AreTheFlagsOfTheCommandAndOfThoseAbove) {
  EXPECT_EQ(Completions({"run", "--o"}), "--output\tHow it is written\n:4\n");
  EXPECT_EQ(Completions({"rm", "--a"}), "--all\tAll of them\n:4\n");
  EXPECT_EQ(Completions({"rm", "--h"}), "--help\tPrint this help message and exit\n:4\n");
  EXPECT_EQ(Completions({"run", "--verbo"}), "--verbose\tSay more\n:4\n");
  EXPECT_EQ(Completions({"run", "--context"}), ":4\n") << "it is hidden";
}

TEST(CompletionsFor, AreTheValuesOfAFlag) {
  EXPECT_EQ(Completions({"run", "-o", ""}), "json\t\nyaml\t\n:4\n");
  EXPECT_EQ(Completions({"run", "--output", "y"}), "yaml\t\n:4\n");
  EXPECT_EQ(Completions({"run", "--folder", ""}), ":0\n");
  EXPECT_EQ(Completions({"run", "--replicas", ""}), ":4\n");
  EXPECT_EQ(Completions({"--verbose", "ru"}), "run\tRun a file\n:4\n") << "a flag without a value";
  EXPECT_EQ(Completions({"--context", "run", "r"}), "run\tRun a file\nrm\tRemove jobs\n:4\n")
      << "run is a value";
}

TEST(CompletionsFor, AreTheValuesOfAnArgument) {
  EXPECT_EQ(Completions({"run", ""}), ":0\n");
  EXPECT_EQ(Completions({"run", "job.yaml", ""}), ":4\n");
  EXPECT_EQ(Completions({"rm", "sm"}), "small\t\nsmaller\t\n:4\n");
  EXPECT_EQ(Completions({"rm", "small", "l"}), "large\t\n:4\n");
  EXPECT_EQ(Completions({"run", "--", "rm", ""}), ":0\n") << "words of the user's own command";
}

TEST(CompletionScript, NamesTheProgramOnly) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionScript(shell, "lockstep");
    ASSERT_TRUE(script.ok()) << shell;
    EXPECT_NE(script->find("lockstep __complete"), std::string::npos) << shell;
    EXPECT_EQ(script->find("PROGRAM"), std::string::npos) << shell;
  }
  EXPECT_EQ(CompletionScript("tcsh", "lockstep").error().message,
            "no completion for tcsh: must be bash, zsh or fish");
}

}  // namespace
}  // namespace lockstep::command_line
