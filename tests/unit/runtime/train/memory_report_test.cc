// What a strategy says that a step takes in memory, compared with what it takes.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "runtime/train/memory_report.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kMebi = int64_t{1} << 20;

// Counts the bytes of all tensors on the CPU.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& Install() {
    static CountingAllocator counting;
    c10::SetCPUAllocator(&counting, /*priority=*/100);
    return counting;
  }

  at::DataPtr allocate(std::size_t bytes) override {
    void* memory = actual_.raw_allocate(bytes);
    const std::scoped_lock lock(mutex_);
    sizes_[memory] = static_cast<int64_t>(bytes);
    live_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return {memory, memory, &Free, at::kCPU};
  }
  [[nodiscard]] at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void ForgetPeak() {
    const std::scoped_lock lock(mutex_);
    peak_ = live_;
  }
  [[nodiscard]] int64_t peak() {
    const std::scoped_lock lock(mutex_);
    return peak_;
  }

 private:
  static void Free(void* memory) {
    CountingAllocator& counting = Install();
    const std::scoped_lock lock(counting.mutex_);
    const auto found = counting.sizes_.find(memory);
    counting.live_ -= found->second;
    counting.sizes_.erase(found);
    counting.actual_.raw_deallocate(memory);
  }

  c10::Allocator& actual_ = *c10::GetDefaultCPUAllocator();
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

struct Case {
  api::Strategy strategy;
  int world = 2;
  api::Precision precision = api::Precision::kFp32;
  int copies = 1;
};

api::TrainingSpec Training(const Case& of) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {2048, 2048, 2048, 2048};
  spec.data.synthetic = {.samples = 50, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.optimizer = {.name = api::OptimizerName::kAdam, .learning_rate = 1e-6};
  spec.global_batch_size = 4;
  spec.precision = of.precision;
  spec.strategy = of.strategy;
  spec.zero1.copies = spec.fsdp.copies = of.copies;
  spec.sync.every_steps = 2;
  return spec;
}

TEST(MemoryReport, SaysWhatAStepTakes) {
  const std::array<Case, 10> cases = {{{api::Strategy::kDdp},
                                       {api::Strategy::kLocalsgd},
                                       {api::Strategy::kZero1, 3},
                                       {.strategy = api::Strategy::kZero1, .world = 3, .copies = 2},
                                       {api::Strategy::kFsdp},
                                       {api::Strategy::kFsdp, 4},
                                       {api::Strategy::kFsdp, 2, api::Precision::kBf16},
                                       {.strategy = api::Strategy::kFsdp, .world = 3, .copies = 2},
                                       {api::Strategy::kPipeline, 2},
                                       {api::Strategy::kHybrid, 4}}};
  for (const Case& of : cases) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    RoundConnector connector;
    auto ranks = StartRanks(of.world, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      CountingAllocator& counting = CountingAllocator::Install();
      Trainer trainer(Training(of));
      auto communicator = connector.Enter(1, rank, of.world);
      REQUIRE(communicator.ok());
      REQUIRE(trainer.Sync(**communicator).ok());
      std::unique_ptr<parallel::Strategy> strategy;
      const auto run = [&](Trainer& of_rank, int64_t until_step) -> Result<void> {
        if (!of_rank.state().has_whole_model()) return of_rank.RunRound(*communicator, until_step);
        if (strategy == nullptr) {
          LOCKSTEP_TRY(strategy, MakeStrategy(Training(of), *communicator, of_rank.replicated()));
        }
        return of_rank.RunRoundWith(*strategy, **communicator, until_step);
      };
      // In the first steps c10d's Reducer holds two sets of buckets.
      REQUIRE(run(trainer, 2).ok());
      counting.ForgetPeak();
      REQUIRE(run(trainer, 5).ok());
      parent.Send(std::to_string(counting.peak()));
      parent.Send(std::to_string(trainer.state().Memory(of.world).total()));
      return 0;
    });
    int64_t taken = 0;
    int64_t said = 0;
    for (auto& rank : ranks) {
      taken = std::max<int64_t>(taken, std::stoll(rank.channel().Receive(kPatience).value_or("0")));
      said = std::stoll(rank.channel().Receive(kPatience).value_or("0"));
    }
    ExpectAllSucceed(ranks);
    std::printf("%s, %d ranks: %lld MiB of %lld MiB\n", std::string(api::NameOf(of.strategy)).c_str(),
                of.world, static_cast<long long>(taken / kMebi), static_cast<long long>(said / kMebi));
    // Buffers of constant size: chunks in which parts are exchanged. What is gathered and what is sent may overlap
    // less than it can.
    EXPECT_LE(taken, said + said / 10 + 32 * kMebi);
    EXPECT_GE(taken, said - said / 6);
  }
}

TEST(MemoryReport, OfCpuOffloadLeavesGradientsAndLayersOnTheDevice) {
  api::TrainingSpec spec = Training({api::Strategy::kFsdp});
  const StateMemory without = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value()->Memory(2);
  spec.fsdp.cpu_offload = true;
  const StateMemory with = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value()->Memory(2);
  EXPECT_EQ(with.total(), without.gradients + without.gathered);
  EXPECT_EQ(with.host, without.parameters + without.optimizer + without.gradients);
}

TEST(MemoryReport, OfModelparallelIsThatOfTheDeviceThatHoldsMost) {
  api::TrainingSpec spec = Training({api::Strategy::kModelparallel});
  spec.steps = 10;
  const std::array worlds = {1};
  const auto of = [&](int devices) {
    return std::move(ReportMemory(spec, {{1, 8, 8}, 3}, worlds, {.devices = devices})).value().sizes;
  };
  EXPECT_EQ(of(1).at(0).memory.total(), of(1).at(1).memory.total());  // the second is that of ddp
  const StateMemory most = of(3).at(0).memory;
  // The first two of its five layers.
  constexpr int64_t kBytes = ((64 + 1) * 2048 + (2048 + 1) * 2048) * int64_t{4};
  EXPECT_EQ(most.parameters, kBytes);
  EXPECT_EQ(most.gradients, kBytes);
  EXPECT_EQ(most.optimizer, 2 * kBytes);
  EXPECT_EQ(most.gathered, int64_t{2048} * 2048 * 4);
}

TEST(MemoryReport, ComparesStrategiesAndSaysWhyOneIsLeftOut) {
  api::TrainingSpec spec = Training({api::Strategy::kZero1});
  spec.optimizer.name = api::OptimizerName::kMuon;
  spec.optimizer.momentum = 0.95;
  spec.steps = 10;
  const std::array worlds = {1, 4};
  const auto report = ReportMemory(spec, {{1, 8, 8}, 3}, worlds, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_FALSE(report->sizes.empty());
  EXPECT_EQ(report->sizes.front().strategy, "zero1");
  EXPECT_EQ(report->sizes.front().ranks, 1);
  EXPECT_LT(report->sizes.at(1).memory.total(), report->sizes.front().memory.total());
  ASSERT_EQ(report->left_out.size(), 1U) << report->left_out.back().reason;
  EXPECT_EQ(report->left_out.front().strategy, "fsdp");
  EXPECT_NE(report->left_out.front().reason.find("muon"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
