#include "runtime/tools/cli/torchrun_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

TorchrunLine Read(const Words& words, const launch::Environment& environment = {},
                  MachineResources here = {}) {
  auto line = FromTorchrun(words, environment, here);
  EXPECT_TRUE(line.ok()) << line.error().message;
  EXPECT_TRUE(line->has_value());
  return **line;
}

std::string ProblemOf(const Words& words, MachineResources here = {}) {
  const auto line = FromTorchrun(words, {}, here);
  return line.ok() ? "" : line.error().message;
}

TEST(FromTorchrun, TakesAScriptWithItsArgumentsUnchanged) {
  const TorchrunLine line = Read({"--standalone", "--nnodes=1", "--nproc_per_node", "4", "--max-restarts",
                                  "2", "train.py", "--nproc-per-node", "9", "--", "-x"});
  EXPECT_THAT(line.flags, ElementsAre("--nproc", "4", "--max-restarts", "2"));
  EXPECT_THAT(line.command, ElementsAre("python3", "-u", "train.py", "--nproc-per-node", "9", "--", "-x"));
  EXPECT_THAT(line.machines, IsEmpty());
}

TEST(FromTorchrun, StartsModulesAndOtherProgramsAsTorchrunDoes) {
  EXPECT_THAT(Read({"-m", "pkg.train", "a"}).command, ElementsAre("python3", "-u", "-m", "pkg.train", "a"));
  EXPECT_THAT(Read({"--no-python", "./a.out", "b"}).command, ElementsAre("./a.out", "b"));
  EXPECT_THAT(Read({"train.py"}, {{"PYTHON_EXEC", "/venv/bin/python"}}).command,
              ElementsAre("/venv/bin/python", "-u", "train.py"));
}

TEST(FromTorchrun, LeavesLinesOfLockstepAlone) {
  for (const Words& words :
       {Words{}, Words{"job.yaml", "--replicas", "2"}, Words{"--nproc", "2", "--", "python3", "train.py"},
        Words{"--folder", "run.py", "job.yaml"}, Words{"--help"}}) {
    const auto line = FromTorchrun(words, {}, {});
    ASSERT_TRUE(line.ok());
    EXPECT_FALSE(line->has_value());
  }
}

TEST(FromTorchrun, CountsTheProcessesOfThisMachine) {
  EXPECT_THAT(Read({"--nproc-per-node=auto", "train.py"}, {}, {.gpus = 8, .processors = 64}).flags,
              ElementsAre("--nproc", "8"));
  EXPECT_THAT(Read({"--nproc-per-node=auto", "train.py"}, {}, {.processors = 6}).flags,
              ElementsAre("--nproc", "6"));
  EXPECT_THAT(Read({"--nproc-per-node=cpu", "train.py"}, {}, {.gpus = 8, .processors = 6}).flags,
              ElementsAre("--nproc", "6"));
  EXPECT_THAT(ProblemOf({"--nproc-per-node=gpu", "train.py"}), HasSubstr("no NVIDIA GPU"));
}

TEST(FromTorchrun, FindsTheMachinesByItsFlags) {
  EXPECT_THAT(Read({"--nnodes", "2", "--node-rank", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                    "host:29400", "train.py"})
                  .machines,
              UnorderedElementsAre(Pair("NNODES", "2"), Pair("NODE_RANK", "1"), Pair("MASTER_ADDR", "host"),
                                   Pair("MASTER_PORT", "29400")));
  EXPECT_THAT(
      Read({"--nnodes", "2:2", "--rdzv-endpoint", "host", "train.py"}, {{"SLURM_NODEID", "1"}}).machines,
      UnorderedElementsAre(Pair("NNODES", "2"), Pair("NODE_RANK", "1"), Pair("MASTER_ADDR", "host")));
  EXPECT_THAT(Read({"--rdzv-endpoint", "localhost:0", "train.py"}).machines, IsEmpty())
      << "one machine needs none";
}

TEST(FromTorchrun, NamesWhatItCannotDo) {
  EXPECT_EQ(ProblemOf({"--nnodes", "1:4", "train.py"}),
            "--nnodes 1:4: `lockstep run` has a fixed number of machines: name one number");
  EXPECT_THAT(ProblemOf({"--nprocs", "4", "train.py"}), HasSubstr("--nprocs 4: is neither"));
}

TEST(FromTorchrun, KeepsTheFlagsOfLockstep) {
  EXPECT_THAT(Read({"--no-prefix", "--log-dir", "logs", "train.py"}).flags,
              ElementsAre("--no-prefix", "--folder", "logs"));
}

}  // namespace
}  // namespace lockstep::cli
