#include "runtime/train/replicated/step_graphs.h"

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
using testing::RoundConnector;
using testing::StartRanks;

// A CPU device whose graphs are lists of operators (recorded_graph.h); counts the calls.
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

constexpr int64_t kSteps = 20;  // of which the first 11 of a round run pass by pass

// Trains as the given rank in a world of that size.
int Train(const api::TrainingSpec& spec, RoundConnector& connector, int rank, int world, Outcome& outcome) {
  CountingDevice device;
  auto communicator = connector.Enter(1, rank, world, {.backend = &device});
  REQUIRE(communicator.ok());
  // After 2000 good steps the scale is doubled, when graphs with the old scale exist.
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

// Compares the bits after steps of 22, 22 and 6 samples: two kinds of steps, each pass of which has a graph.
void ExpectTheSame(const api::TrainingSpec& spec, int world, int graphs, int replays) {
  RoundConnector first;
  RoundConnector second;
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
  // Five micro-batches of 22 samples, two of 6; there are three of the latter steps.
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

// The process group changes, and so do the buckets of the gradients.
TEST(StepGraphs, AreRecordedAgainInEachRound) {
  const api::TrainingSpec spec = Graphed(SmallTraining(api::Determinism::kNone));
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    CountingDevice device;
    Trainer trainer(spec, {.device = &device, .total_steps = 2 * kSteps});
    for (RoundConnector* connector : {&first, &second}) {
      const bool is_first = connector == &first;
      auto communicator = connector->Enter(is_first ? 1 : 2, rank, 2, {.backend = &device});
      REQUIRE(communicator.ok());
      REQUIRE(trainer.RunRound(*communicator, is_first ? kSteps : 2 * kSteps).ok());
      trainer.LeaveRound();
      REQUIRE(device.graphs == (is_first ? 2 : 4));
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Takes first the steps that always run pass by pass.
StepGraphs::Way BeginAfterTheFirst(StepGraphs& graphs, comm::Communicator& round) {
  auto way = StepGraphs::Way::kPassByPass;
  for (int step = 0; step < 12; ++step) way = graphs.Begin(round, {{0, 3}}, 1);
  return way;
}

data::Batch Ones() { return {at::ones({3, 2}), at::zeros({3}, at::kLong)}; }

// Reads a value in the middle of a pass, which cannot be recorded.
Result<at::Tensor> Peek(const data::Batch& batch) {
  const at::Tensor sum = batch.inputs.sum();
  return sum.item<double>() > 0 ? sum : -sum;
}

TEST(StepGraphs, AreGivenUpWhereStepsCannotBeRecorded) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    GlooDevice device(at::kCPU);
    auto communicator = connector.Enter(1, rank, 1, {.backend = &device});
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
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    NeverDone device;
    auto communicator = connector.Enter(1, rank, 1, {.backend = &device});
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
