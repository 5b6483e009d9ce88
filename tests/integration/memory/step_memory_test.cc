// What a step may take in memory with strategy fsdp: each rank in a memory cgroup whose limit is that.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <optional>
#include <vector>

#include "runtime/train/shards/shard_plan.h"
#include "tests/integration/memory/memory_budget.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

constexpr int64_t kBytesInMiB = int64_t{1} << 20;
constexpr int64_t kBytesOfFloat = 4;
// Two layers with their gradients, and what is sent and received of two gradients: Gloo's threads release them
// late.
constexpr int64_t kLayersAtOnce = 8;

// So many equal layers, and two small ones.
api::TrainingSpec LayersOf(int64_t width, std::size_t layers) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes.assign(layers + 1, width);
  spec.data.synthetic = {.samples = 50, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.optimizer = {.name = api::OptimizerName::kAdam, .learning_rate = 1e-6};
  spec.global_batch_size = 4;
  spec.strategy = api::Strategy::kFsdp;
  return spec;
}

void ExpectAPartAndAFewLayers(api::Precision precision, int world, std::size_t layers) {
  constexpr int64_t kWidth = 2048;
  const int64_t layer = kWidth * kWidth * kBytesOfFloat;
  std::vector<std::optional<testing::MemoryGroup>> groups;
  for (int i = 0; i < world; ++i) groups.push_back(testing::MemoryGroup::Make(std::to_string(i)));
  testing::RoundConnector rehearsal;
  testing::RoundConnector connector;
  auto ranks = testing::StartRanks(world, [&](int rank, testing::LineChannel& parent) {
    at::set_num_threads(1);
    ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kBytesInMiB));  // what is freed is not resident then
    testing::MemoryBudget budget(groups[IndexOf(rank)]);
    const auto step = [&](Trainer& trainer, testing::RoundConnector& round, int64_t allowed) {
      const std::shared_ptr<comm::Communicator> communicator = std::move(round.Enter(1, rank, world)).value();
      LOCKSTEP_CHECK(trainer.Sync(*communicator).ok());
      budget.Allow(allowed);
      LOCKSTEP_CHECK(trainer.RunRound(communicator, 3).ok());
      return budget.TakePeak();
    };
    const auto in_precision = [precision](api::TrainingSpec spec) {
      spec.precision = precision;
      return spec;
    };
    Trainer small(in_precision(LayersOf(8, 2)));
    (void)step(small, rehearsal, static_cast<int64_t>(layers) * layer);  // loads the code that is measured
    Trainer trainer(in_precision(LayersOf(kWidth, layers)));
    int64_t bytes = 0;
    for (const NamedTensor& parameter : trainer.state().parameters)
      bytes += parameter.tensor.numel() * kBytesOfFloat;
    const int64_t allowed = bytes / world + kLayersAtOnce * layer;
    parent.Send(std::to_string(step(trainer, connector, allowed)));
    parent.Send(std::to_string(allowed));
    return 0;
  });
  for (auto& rank : ranks) {
    const auto peak = rank.channel().Receive(testing::kPatience);
    ASSERT_TRUE(peak.has_value()) << "the kernel kills a process at its cgroup's limit";
    const int64_t allowed = std::stoll(rank.channel().Receive(testing::kPatience).value_or("0"));
    std::printf("a step: %lld of %lld MiB\n", std::stoll(*peak) / kBytesInMiB,
                static_cast<long long>(allowed / kBytesInMiB));
    EXPECT_LE(std::stoll(*peak), allowed);
    EXPECT_EQ(rank.Wait(testing::kPatience), 0);
  }
}

TEST(MemoryOfAStepOfFsdp, IsTheGradientOfAPartAndAFewLayers) {
  ExpectAPartAndAFewLayers(api::Precision::kFp32, 2, 16);
}

// So many layers and ranks that 16-bit copies of all layers would need more.
TEST(MemoryOfAStepOfFsdp, IsTheSameInMixedPrecision) {
  ExpectAPartAndAFewLayers(api::Precision::kBf16, 4, 24);
}

}  // namespace
}  // namespace lockstep::train
