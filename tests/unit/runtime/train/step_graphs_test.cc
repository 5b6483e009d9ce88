#include "runtime/train/step_graphs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/forked_ranks.h"
#include "tests/support/gloo_device.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::GlooDevice;
using testing::kPatience;
using testing::LineChannel;
using testing::Meeting;
using testing::StartRanks;

// Of the CPU, whose graphs are lists of operators (recorded_graph.h); counts what is asked of it.
class CountingDevice final : public GlooDevice {
 public:
  CountingDevice() : GlooDevice(at::kCPU) {}

  std::unique_ptr<comm::DeviceGraph> NewGraph() override {
    ++graphs;
    return std::make_unique<Counted>(GlooDevice::NewGraph(), replays);
  }

  int graphs = 0;
  int replays = 0;

 private:
  class Counted final : public comm::DeviceGraph {
   public:
    Counted(std::unique_ptr<comm::DeviceGraph> graph, int& replays)
        : graph_(std::move(graph)), replays_(replays) {}
    void Record(const std::function<void()>& work) override { graph_->Record(work); }
    void Replay() override {
      ++replays_;
      graph_->Replay();
    }

   private:
    const std::unique_ptr<comm::DeviceGraph> graph_;
    int& replays_;
  };
};

struct Outcome {
  std::string bits;
  int64_t bytes_given = 0;
  int graphs = 0;
  int replays = 0;
};

constexpr int64_t kSteps = 20;  // of which the first 11 of a round are taken pass by pass

// Rank by rank of so many.
int Train(const api::TrainingSpec& spec, Meeting& meeting, int rank, int world, Outcome& outcome) {
  CountingDevice device;
  auto communicator = meeting.Enter(1, rank, world, {.backend = &device});
  REQUIRE(communicator.ok());
  // After 2000 the scale is doubled, when graphs are there that know the old one.
  const int64_t good_steps = spec.precision == api::Precision::kFp16 ? 2000 - 16 : 0;
  Trainer trainer(spec, {.device = &device, .total_steps = kSteps, .good_steps = good_steps});
  REQUIRE(trainer.Sync(**communicator).ok());
  REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
  trainer.LeaveRound();
  outcome = {trainer.Bits(), (*communicator)->bytes_given(), device.graphs, device.replays};
  return 0;
}

api::TrainingSpec Graphed(api::TrainingSpec spec) {
  spec.cuda_graph = true;
  return spec;
}

// The same bits after steps of 22, 22 and 6 samples, two kinds, whose passes have a graph each.
void ExpectTheSame(const api::TrainingSpec& spec, int world, int graphs, int replays) {
  Meeting first;
  Meeting second;
  auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Outcome plain;
    Outcome graphed;
    REQUIRE(Train(spec, first, rank, world, plain) == 0);
    REQUIRE(Train(Graphed(spec), second, rank, world, graphed) == 0);
    REQUIRE(plain.graphs == 0);
    REQUIRE(graphed.graphs == graphs);
    REQUIRE(graphed.replays == replays);
    REQUIRE(graphed.bits == plain.bits);
    REQUIRE(graphed.bytes_given == plain.bytes_given);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(StepGraphs, LearnTheSameAsPassByPass) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  ExpectTheSame(spec, 1, 2, 9);
  ExpectTheSame(spec, 2, 2, 9);
}

TEST(StepGraphs, AddUpMicroBatches) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.micro_batch_size = 5;
  // Of 22 samples five, of 6 two; of the latter there are three steps.
  ExpectTheSame(spec, 1, 5 + 2, 6 * 5 + 3 * 2);
  ExpectTheSame(spec, 2, 3 + 1, 6 * 3 + 3 * 1);
}

TEST(StepGraphs, ScaleTheLossesOfFp16) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.precision = api::Precision::kFp16;
  ExpectTheSame(spec, 2, 2, 9);
}

TEST(StepGraphs, DivideTheOptimizer) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kZero1;
  ExpectTheSame(spec, 2, 2, 9);
}

// Its group is another, and so are the buckets of its gradients.
TEST(StepGraphs, AreRecordedAnewInEachRound) {
  const api::TrainingSpec spec = Graphed(SmallTraining(api::Determinism::kNone));
  Meeting first;
  Meeting second;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    CountingDevice device;
    Trainer trainer(spec, {.device = &device, .total_steps = 2 * kSteps});
    for (Meeting* meeting : {&first, &second}) {
      const bool is_first = meeting == &first;
      auto communicator = meeting->Enter(is_first ? 1 : 2, rank, 2, {.backend = &device});
      REQUIRE(communicator.ok());
      REQUIRE(trainer.RunRound(*communicator, is_first ? kSteps : 2 * kSteps).ok());
      trainer.LeaveRound();
      REQUIRE(device.graphs == (is_first ? 2 : 4));
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Begins with what is taken pass by pass anyway.
StepGraphs::Way BeginAfterTheFirst(StepGraphs& graphs, comm::Communicator& round) {
  auto way = StepGraphs::Way::kPassByPass;
  for (int step = 0; step < 12; ++step) way = graphs.Begin(round, {{0, 3}}, 1);
  return way;
}

data::Batch Ones() { return {at::ones({3, 2}), at::zeros({3}, at::kLong)}; }

// Somebody who reads a value in the midst of a pass.
Result<at::Tensor> Peek(const data::Batch& batch) {
  const at::Tensor sum = batch.inputs.sum();
  return sum.item<double>() > 0 ? sum : -sum;
}

TEST(StepGraphs, AreGivenUpWhereStepsCannotBeRecorded) {
  Meeting meeting;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    GlooDevice device(at::kCPU);
    auto communicator = meeting.Enter(1, rank, 1, {.backend = &device});
    REQUIRE(communicator.ok());
    StepGraphs graphs(device, {});
    for (int attempt = 0; attempt < 2; ++attempt) {
      REQUIRE(BeginAfterTheFirst(graphs, **communicator) == StepGraphs::Way::kRecord);
      const auto taken = graphs.Take(Ones(), Peek);
      REQUIRE(!taken.ok() && taken.error().code == ErrorCode::kInternal);
      REQUIRE(
          taken.error().message.starts_with("recording the step for spec.training.cudaGraph: recording a"));
      graphs.Forget();
    }
    REQUIRE(BeginAfterTheFirst(graphs, **communicator) == StepGraphs::Way::kPassByPass);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// As a GPU whose peer is gone.
class NeverDone final : public GlooDevice {
 public:
  NeverDone() : GlooDevice(at::kCPU) {}
  c10::intrusive_ptr<c10d::Work> Queued() override { return c10::make_intrusive<Pending>(); }

 private:
  class Pending final : public c10d::Work {
   public:
    bool isCompleted() override { return false; }
  };
};

TEST(StepGraphs, AreNotWaitedForWhenTheRoundIsAborted) {
  Meeting meeting;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    NeverDone device;
    auto communicator = meeting.Enter(1, rank, 1, {.backend = &device});
    REQUIRE(communicator.ok());
    StepGraphs graphs(device, {});
    REQUIRE(BeginAfterTheFirst(graphs, **communicator) == StepGraphs::Way::kRecord);
    REQUIRE(
        graphs.Take(Ones(), [](const data::Batch& batch) { return Result<at::Tensor>(batch.inputs.sum()); })
            .ok());
    std::jthread other([&] {
      while (!(*communicator)->waits_for_peers()) std::this_thread::yield();
      (*communicator)->Abort();
    });
    const auto awaited = graphs.Await();
    REQUIRE(!awaited.ok() && awaited.error().code == ErrorCode::kAborted);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train
