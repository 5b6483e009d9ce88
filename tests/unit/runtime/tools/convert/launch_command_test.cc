#include "runtime/tools/convert/launch_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::convert {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Words = std::vector<std::string>;

TEST(UnwrapLauncher, LeavesAPlainScriptAlone) {
  const Launch launch = UnwrapLauncher({"python3", "-u", "train.py"}, {"--nnodes", "2"});
  EXPECT_FALSE(launch.is_torchrun);
  EXPECT_THAT(launch.command, ElementsAre("python3", "-u", "train.py"));
  EXPECT_THAT(launch.args, ElementsAre("--nnodes", "2"));
  EXPECT_THAT(launch.problems, IsEmpty());
}

TEST(UnwrapLauncher, TakesOffTorchrunInItsForms) {
  struct {
    Words command;
    Words args;
    Words program;
    Words rest;
  } const cases[] = {
      {{"torchrun", "train.py", "--lr", "1"}, {}, {"python3", "train.py"}, {"--lr", "1"}},
      {{"torchrun"}, {"--nnodes=2", "train.py", "--nnodes=9"}, {"python3", "train.py"}, {"--nnodes=9"}},
      {{"/opt/conda/bin/torchrun", "-m", "pkg.train", "-x"},
       {},
       {"/opt/conda/bin/python3", "-m", "pkg.train"},
       {"-x"}},
      {{"python", "-u", "-m", "torch.distributed.run", "--tee", "3", "train.py"},
       {},
       {"python", "-u", "train.py"},
       {}},
      {{"torchrun", "--standalone", "--no-python", "./train", "a"}, {}, {"./train"}, {"a"}},
      {{"python3", "-m", "torch.distributed.launch", "--use_env", "t.py"}, {}, {"python3", "t.py"}, {}},
  };
  for (const auto& [command, args, program, rest] : cases) {
    const Launch launch = UnwrapLauncher(command, args);
    EXPECT_TRUE(launch.is_torchrun) << command.front();
    EXPECT_EQ(launch.command, program);
    EXPECT_EQ(launch.args, rest);
    EXPECT_THAT(launch.problems, IsEmpty());
  }
}

TEST(UnwrapLauncher, AcceptsBothSpellingsOfFlags) {
  const Launch launch =
      UnwrapLauncher({"torchrun", "--nproc-per-node", "4", "--max_restarts=2", "-r", "3", "train.py"}, {});
  EXPECT_THAT(launch.flags, ElementsAre(Pair("--max_restarts", "2"), Pair("--nproc_per_node", "4"),
                                        Pair("--redirects", "3")));
}

TEST(UnwrapLauncher, ChangesOnlyTheCommandInAScript) {
  const std::string script =
      "set -e\n# torchrun is below\ncd /app && FOO=\"a b\" exec torchrun --nnodes=$PET_NNODES \\\n  "
      "--nproc_per_node 2 "
      "train.py --name \"$RUN $(date +%F)\" 'x y'; echo done\n";
  const Launch launch = UnwrapLauncher({"/bin/bash", "-ec", script}, {});
  EXPECT_THAT(launch.command,
              ElementsAre("/bin/bash", "-ec",
                          "set -e\n# torchrun is below\ncd /app && FOO=\"a b\" exec python3 train.py --name "
                          "\"$RUN $(date +%F)\" 'x y'; echo done\n"));
  EXPECT_THAT(launch.flags, ElementsAre(Pair("--nnodes", "$PET_NNODES"), Pair("--nproc_per_node", "2")));
  EXPECT_FALSE(launch.prepares);
}

TEST(UnwrapLauncher, FindsTheScriptAmongTheArguments) {
  const Launch launch = UnwrapLauncher({"sh", "-c"}, {"pip install -r more.txt; torchrun train.py"});
  EXPECT_THAT(launch.args, ElementsAre("pip install -r more.txt; python3 train.py"));
  EXPECT_TRUE(launch.prepares);
}

TEST(UnwrapLauncher, SaysWhatItCannotTakeOff) {
  struct {
    Words command;
    std::string problem;
  } const cases[] = {
      {{"python", "-m", "torch.distributed.launch", "train.py"}, "--local-rank"},
      {{"torchrun", "--new_flag=1", "train.py"}, "--new_flag"},
      {{"torchrun", "--nnodes=2"}, "no script"},
      {{"nsys", "profile", "torchrun", "train.py"}, "not as its first word"},
      {{"bash", "-c", "timeout 3h torchrun train.py"}, "not as its first word"},
      {{"accelerate", "launch", "train.py"}, "accelerate starts processes"},
      {{"bash", "-c", "cd /app; deepspeed train.py"}, "deepspeed starts processes"},
  };
  for (const auto& [command, problem] : cases)
    EXPECT_THAT(UnwrapLauncher(command, {}).problems, Contains(HasSubstr(problem))) << problem;
}

}  // namespace
}  // namespace lockstep::convert
