#include "runtime/launch/run/machines.h"

#include <gmock/gmock.h>

#include "runtime/launch/run/machine_config.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

const std::string kSecret = "0123456789abcdef";

Environment With(Environment base, const Environment& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

Environment Slurm(const Environment& changes = {}) {
  return With({{"SLURM_JOB_ID", "1234567"},
               {"SLURM_STEP_NUM_NODES", "3"},
               {"SLURM_STEP_NUM_TASKS", "3"},
               {"SLURM_STEP_NODELIST", "node[07-09]"},
               {"SLURM_NODEID", "1"},
               {"LOCKSTEP_TOKEN", kSecret}},
              changes);
}

Environment Bare(const Environment& changes = {}) {
  return With({{"NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "10.0.0.7"}, {"LOCKSTEP_TOKEN", kSecret}},
              changes);
}

Machines Found(const Environment& environment) {
  const auto machines = MachinesFrom(environment);
  EXPECT_TRUE(machines.ok()) << (machines.ok() ? "" : machines.error().message);
  if (!machines.ok()) return {};
  EXPECT_TRUE(machines->has_value());
  return machines->value_or(Machines{});
}

std::string WhyNot(const Environment& environment) {
  const auto machines = MachinesFrom(environment);
  return machines.ok() ? "" : machines.error().message;
}

TEST(MachinesFrom, PlaysAllMachinesWithoutVariablesOfALauncher) {
  for (const Environment& environment :
       {Environment{}, Environment{{"LOCKSTEP_TOKEN", kSecret}, {"MASTER_ADDR", "a"}},
        Environment{{"NNODES", "1"}},
        // In a batch script, before srun.
        Environment{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-4]"}, {"SLURM_NODEID", "0"}}}) {
    const auto machines = MachinesFrom(environment);
    ASSERT_TRUE(machines.ok()) << machines.error().message;
    EXPECT_FALSE(machines->has_value());
  }
}

TEST(MachinesFrom, ReadsASlurmStep) {
  const Machines machines = Found(Slurm());
  EXPECT_EQ(machines.index, 1);
  EXPECT_EQ(machines.count, 3);
  EXPECT_EQ(machines.host, "node07");
  EXPECT_EQ(machines.port, 15'000 + 4567);
  EXPECT_EQ(machines.token, kSecret);
  EXPECT_EQ(Found(Slurm({{"SLURM_NODEID", "0"}})).neighbour, "node08");
  EXPECT_EQ(Found(Slurm({{"SLURM_JOB_ID", "19999"}})).port, 24'999);
}

TEST(MachinesFrom, LetsMasterAddrAndPortNameAnotherNetwork) {
  const Machines machines = Found(Slurm({{"MASTER_ADDR", "ib-node07"}, {"MASTER_PORT", "4242"}}));
  EXPECT_EQ(machines.host, "ib-node07");
  EXPECT_EQ(machines.port, 4242);
}

TEST(MachinesFrom, NeedsNoSecretOnOneNode) {
  const Machines machines = Found({{"SLURM_JOB_ID", "7"},
                                   {"SLURM_STEP_NUM_NODES", "1"},
                                   {"SLURM_STEP_NUM_TASKS", "1"},
                                   {"SLURM_STEP_NODELIST", "n1"},
                                   {"SLURM_NODEID", "0"}});
  EXPECT_EQ(machines.count, 1);
}

TEST(MachinesFrom, ReadsTheVariablesOfTorchrunAndOfThoseWhoStartIt) {
  const Environment cases[] = {
      Bare(),
      {{"PET_NNODES", "2"},
       {"PET_NODE_RANK", "1"},
       {"PET_MASTER_ADDR", "10.0.0.7"},
       {"LOCKSTEP_TOKEN", kSecret}},
      // The variables that torchrun itself reads come first.
      Bare({{"NODE_RANK", "0"},
            {"PET_NODE_RANK", "1"},
            {"MASTER_ADDR", "wrong"},
            {"PET_MASTER_ADDR", "10.0.0.7"}}),
      // Started by torchrun or a compatible launcher.
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.7"}, {"LOCKSTEP_TOKEN", kSecret}},
      // A batch script's variables in a Slurm step.
      Bare({{"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_NODEID", "1"}}),
  };
  for (const Environment& environment : cases) {
    const Machines machines = Found(environment);
    EXPECT_EQ(machines.index, 1);
    EXPECT_EQ(machines.count, 2);
    EXPECT_EQ(machines.host, "10.0.0.7");
    EXPECT_EQ(machines.port, 29'500);
  }
}

TEST(MachinesFrom, LeavesTorchrunItsOwnPort) {
  const Environment torchrun = {{"RANK", "0"},
                                {"WORLD_SIZE", "2"},
                                {"LOCAL_WORLD_SIZE", "1"},
                                {"MASTER_ADDR", "a"},
                                {"MASTER_PORT", "29400"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"LOCKSTEP_TOKEN", kSecret}};
  EXPECT_EQ(Found(torchrun).port, 29'401);
}

TEST(MachinesFrom, TakesAnIpv6Address) {
  EXPECT_EQ(Found(Bare({{"MASTER_ADDR", "fd00::1"}})).host, "fd00::1");
}

TEST(MachinesFrom, SaysWhatIsWrong) {
  const struct {
    Environment environment;
    std::string says;
  } cases[] = {
      {Slurm({{"LOCKSTEP_TOKEN", ""}}), "LOCKSTEP_TOKEN is not set"},
      {Bare({{"LOCKSTEP_TOKEN", "short"}}), "LOCKSTEP_TOKEN: must be 16 or more"},
      {Bare({{"LOCKSTEP_TOKEN", "0123456789 abcdef"}}), "LOCKSTEP_TOKEN: must be 16 or more"},
      {Bare({{"LOCKSTEP_TOKEN", "0123456789abcdef\r\nX: y"}}), "LOCKSTEP_TOKEN: must be 16 or more"},
      {Slurm({{"SLURM_STEP_NUM_TASKS", "24"}}), "srun --ntasks-per-node=1"},
      {Slurm({{"SLURM_STEP_NODELIST", "node[07-"}}),
       "SLURM_STEP_NODELIST: \"node[07-\": its brackets do not match"},
      {Slurm({{"SLURM_STEP_NODELIST", "node[07-08]"}}), "names 2 machines, SLURM_STEP_NUM_NODES 3"},
      {Slurm({{"SLURM_NODEID", "3"}}), "SLURM_NODEID: must be a number from 0 to 2, not \"3\""},
      {Slurm({{"SLURM_JOB_ID", "x"}}), "SLURM_JOB_ID: must be a number"},
      {Slurm({{"NNODES", "3"}, {"NODE_RANK", "0"}}), "NODE_RANK is 0, but SLURM_NODEID 1"},
      {Bare({{"NODE_RANK", "2"}}), "NODE_RANK: must be a number from 0 to 1, not \"2\""},
      {Bare({{"NODE_RANK", "-1"}}), "NODE_RANK: must be a number"},
      {Bare({{"NNODES", "1:4"}}), "NNODES: must be a number from 1 to 10000, not \"1:4\""},
      {Bare({{"NNODES", ""}}), "NODE_RANK is set, but NNODES"},
      {Bare({{"NODE_RANK", ""}}), "NNODES is set, but NODE_RANK"},
      {Bare({{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set"},
      {Bare({{"MASTER_ADDR", "http://a"}}),
       "MASTER_ADDR: must be a name, an IPv4 address or an IPv6 address"},
      {Bare({{"MASTER_ADDR", "[fd00::1]"}}),
       "MASTER_ADDR: must be a name, an IPv4 address or an IPv6 address without brackets"},
      {Bare({{"MASTER_ADDR", "10.0.0.7:80"}}),
       "MASTER_ADDR: must be a name, an IPv4 address or an IPv6 address"},
      {Bare({{"MASTER_PORT", "0"}}), "MASTER_PORT: must be a number from 1 to 65535"},
      {Bare({{"MASTER_PORT", "80x"}}), "MASTER_PORT: must be a number from 1 to 65535"},
      {{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}, "torchrun --nproc-per-node 1"},
  };
  for (const auto& test : cases) EXPECT_THAT(WhyNot(test.environment), HasSubstr(test.says));
}

TEST(WorkerConfigOn, TakesWhatSlurmGave) {
  api::TrainingJob job;
  const Json trainer = {{"name", "trainer"},
                        {"resources", {{"limits", {{"nvidia.com/gpu", 8}, {"cpu", 4}}}}}};
  job.spec.worker.pod_template = {{"spec", {{"containers", Json::array({trainer})}}}};
  const Machines slurm = Found(Slurm({{"SLURM_GPUS_ON_NODE", "2"}, {"SLURM_CPUS_PER_TASK", "6"}}));
  EXPECT_EQ(WorkerConfigOn(slurm, job).nproc, 2);
  EXPECT_EQ(WorkerConfigOn(slurm, job).requested_gpus, 2);
  EXPECT_EQ(WorkerConfigOn(Found(Bare()), job).nproc, 8) << "nobody knows better than the manifest";
  EXPECT_EQ(WorkerConfigOn(Found(Bare()), job).requested_gpus, 8);
  job.spec.nproc_per_node.mode = api::NprocMode::kCpu;
  EXPECT_EQ(WorkerConfigOn(slurm, job).nproc, 6);
  EXPECT_EQ(WorkerConfigOn(Found(Bare()), job).nproc, 4);
  job.spec.nproc_per_node = {.mode = api::NprocMode::kCount, .count = 3};
  EXPECT_EQ(WorkerConfigOn(slurm, job).nproc, 3);
}

TEST(ManifestHash, IsTheSameWhereverAMachineKeepsItsCopyOfTheData) {
  api::TrainingJob job;
  job.spec.training.emplace().data.cache = "/run/machine-0/data";
  const std::string first = ManifestHash(job);
  job.spec.training->data.cache = "/run/machine-1/data";
  EXPECT_EQ(ManifestHash(job), first);
  job.spec.training->seed += 1;
  EXPECT_NE(ManifestHash(job), first);
}

}  // namespace
}  // namespace lockstep::launch
