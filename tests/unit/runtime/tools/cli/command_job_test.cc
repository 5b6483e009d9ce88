#include "runtime/tools/cli/command_job.h"

#include <gtest/gtest.h>

#include "runtime/common/api/program_of.h"
#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::cli {
namespace {

TEST(JobOfCommand, IsAValidJobThatRunsTheArgumentsUnchanged) {
  const std::vector<std::string> command = {"python3", "train.py", "--name=$(HOME)", "$$", "a b"};
  const LoadedManifest loaded = CheckManifest(JobOfCommand(command, 4));
  EXPECT_EQ(loaded.problems, std::vector<std::string>());
  EXPECT_EQ(api::ProgramStartOf(loaded.job.spec.worker, {{"HOME", "/root"}}).words, command);
  EXPECT_EQ(loaded.job.spec.nproc_per_node.count, 4);
  EXPECT_FALSE(loaded.job.spec.training);
}

TEST(JobOfCommand, IsNamedAfterTheScriptOrTheProgram) {
  const struct {
    std::vector<std::string> command;
    std::string name;
  } cases[] = {
      {{"python3", "-u", "src/Train_GPT.v2.py", "x.py"}, "train-gpt-v2"},
      {{"/usr/bin/env"}, "env"},
      {{"./2.sh"}, "run-2"},
      {{"./_"}, "run"},
      {{std::string(100, 'a')}, std::string(46, 'a')},
  };
  for (const auto& test : cases) {
    const LoadedManifest loaded = CheckManifest(JobOfCommand(test.command, 1));
    EXPECT_EQ(loaded.job.metadata.name, test.name);
    EXPECT_EQ(loaded.problems, std::vector<std::string>()) << test.name;
  }
}

}  // namespace
}  // namespace lockstep::cli
