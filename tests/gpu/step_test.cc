// Steps of a training on a GPU, beside the same steps on the CPU.

#include <ATen/ATen.h>

#include <optional>

#include "runtime/models/channels_last.h"
#include "runtime/models/precision.h"
#include "tests/gpu/with_a_device.h"
#include "tests/support/gloo_device.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using comm::DeviceBackend;
using testing::GlooDevice;
using testing::OnTheGpu;
using testing::RoundConnector;

// Every device draws its dropout in a way of its own, and Adam makes much of the last bit.
api::TrainingSpec Training() {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.learning_rate = 0.1;
  spec.optimizer.momentum = 0.9;
  return spec;
}

bool AreClose(const TrainingState& one, const TrainingState& other) {
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    const at::Tensor mine = one.parameters[i].tensor.cpu();
    if (!at::allclose(mine, other.parameters[i].tensor.cpu(), 1e-3, 1e-5)) return false;
  }
  return true;
}

// One rank's part in both; what is compared is the sums, so they are those of floats.
int ExpectTheSame(DeviceBackend& device, RoundConnector& on_cpu, RoundConnector& on_device, int rank,
                  int world) {
  models::AllowTf32(false);
  Trainer expected(Training());
  auto first = on_cpu.Enter(1, rank, world);
  REQUIRE(first.ok() && expected.RunRound(*first, Trainer::kTotalSteps).ok());
  Trainer trainer(Training(), {.devices = {device.device()}});
  REQUIRE(trainer.state().parameters.front().tensor.device() == device.device());
  auto second = on_device.Enter(1, rank, world, {.backend = &device});
  REQUIRE(second.ok() && trainer.RunRound(*second, Trainer::kTotalSteps).ok());
  REQUIRE(trainer.last().applied && trainer.last().all.count == expected.last().all.count);
  REQUIRE(std::abs(trainer.last().loss - expected.last().loss) < 1e-3 * expected.last().loss);
  REQUIRE(AreClose(trainer.state(), expected.state()));
  return 0;
}

TEST(StepOnAGpu, ComesToTheSameAsOnTheCpu) {
  RoundConnector on_cpu;
  RoundConnector on_gpu;
  OnTheGpu(1, [&](DeviceBackend& gpu, int rank) { return ExpectTheSame(gpu, on_cpu, on_gpu, rank, 1); });
}

// The host stands in for a second GPU: no operation may have tensors of both.
TEST(StepOnAGpu, OfModelparallelComesToTheSameWithLayersOnTheHost) {
  RoundConnector round;
  OnTheGpu(1, [&](DeviceBackend& gpu, int rank) {
    models::AllowTf32(false);
    const auto communicator = round.Enter(1, rank, 1);
    Trainer expected(Training());
    REQUIRE(communicator.ok() && expected.RunRound(*communicator, Trainer::kTotalSteps).ok());
    api::TrainingSpec spec = Training();
    spec.strategy = api::Strategy::kModelparallel;
    for (const std::vector<at::Device>& devices :
         {std::vector<at::Device>{gpu.device(), at::kCPU}, std::vector<at::Device>{at::kCPU, gpu.device()}}) {
      Trainer trainer(spec, {.devices = devices});
      REQUIRE(trainer.state().parameters.front().tensor.device() == devices.front());
      REQUIRE(trainer.state().parameters.back().tensor.device() == devices.back());
      REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
      REQUIRE(std::abs(trainer.last().loss - expected.last().loss) < 1e-3 * expected.last().loss);
      REQUIRE(AreClose(trainer.state(), expected.state()));
    }
    return 0;
  });
}

// NCCL refuses them.
TEST(StepOnAGpu, ComesToTheSameWithTwoRanksOverGloo) {
  RoundConnector on_cpu;
  RoundConnector on_gpu;
  OnTheGpu(2, [&](DeviceBackend& gpu, int rank) {
    GlooDevice shared(gpu.device());
    return ExpectTheSame(shared, on_cpu, on_gpu, rank, 2);
  });
}

TEST(StepOnAGpu, OfFsdpComesToTheSameWithItsStateInHostMemory) {
  RoundConnector of_device;
  RoundConnector of_host;
  OnTheGpu(2, [&](DeviceBackend& gpu, int rank) {
    GlooDevice shared(gpu.device());
    const auto last_of = [&](RoundConnector& round, bool cpu_offload) {
      api::TrainingSpec spec = Training();
      spec.strategy = api::Strategy::kFsdp;
      spec.fsdp.cpu_offload = cpu_offload;
      Trainer trainer(spec, {.devices = {gpu.device()}});
      const auto communicator = std::move(round.Enter(1, rank, 2, {.backend = &shared})).value();
      LOCKSTEP_CHECK(trainer.Sync(*communicator).ok());
      LOCKSTEP_CHECK(trainer.RunRound(communicator, Trainer::kTotalSteps).ok());
      return trainer.last();
    };
    const StepReport expected = last_of(of_device, false);
    const StepReport found = last_of(of_host, true);
    REQUIRE(found.applied && found.all.count == expected.all.count);
    REQUIRE(std::abs(found.loss - expected.loss) < 1e-5 * expected.loss);
    REQUIRE(std::abs(found.gradient_norm - expected.gradient_norm) < 1e-4 * expected.gradient_norm);
    return 0;
  });
}

TEST(StepOnAGpu, LearnsAlmostTheSameInBf16) {
  RoundConnector connector;
  RoundConnector meeting_of_half;
  OnTheGpu(1, [&](DeviceBackend& gpu, int rank) {
    api::TrainingSpec half = Training();
    half.precision = api::Precision::kBf16;
    Trainer exact(Training(), {.devices = {gpu.device()}});
    auto first = connector.Enter(1, rank, 1, {.backend = &gpu});
    REQUIRE(first.ok() && exact.RunRound(*first, 3).ok());
    Trainer trainer(half, {.devices = {gpu.device()}});
    auto second = meeting_of_half.Enter(1, rank, 1, {.backend = &gpu});
    REQUIRE(second.ok() && trainer.RunRound(*second, 3).ok());
    REQUIRE(trainer.state().parameters.front().tensor.scalar_type() == at::kFloat);
    REQUIRE(trainer.last().applied && trainer.last().loss != exact.last().loss);
    REQUIRE(std::abs(trainer.last().loss - exact.last().loss) < 0.02 * exact.last().loss);
    return 0;
  });
}

// With what is gathered by the Reducer and summed by NCCL, where `compression` asks for it of one rank, too.
int ExpectTheSameByGraphs(DeviceBackend& gpu, RoundConnector& connector, RoundConnector& meeting_of_graphs,
                          std::optional<api::Compression> compression) {
  constexpr int64_t kSteps = 24;  // from the twelfth on, kinds are recorded
  api::TrainingSpec spec = Training();
  spec.model.cnn.dropout = 0.5;  // a graph draws as the passes do
  spec.micro_batch_size = 10;
  spec.sync.compression = compression;
  Trainer passes(spec, {.devices = {gpu.device()}, .total_steps = kSteps});
  auto first = connector.Enter(1, 0, 1, {.backend = &gpu});
  REQUIRE(first.ok() && passes.RunRound(*first, kSteps).ok());
  spec.cuda_graph = true;
  Trainer graphs(spec, {.devices = {gpu.device()}, .device = &gpu, .total_steps = kSteps});
  auto second = meeting_of_graphs.Enter(1, 0, 1, {.backend = &gpu});
  REQUIRE(second.ok() && graphs.RunRound(*second, kSteps).ok());
  graphs.LeaveRound();
  REQUIRE(graphs.last().applied);
  REQUIRE(std::abs(graphs.last().loss - passes.last().loss) < 1e-3 * passes.last().loss);
  REQUIRE(AreClose(graphs.state(), passes.state()));
  return 0;
}

TEST(StepOnAGpu, ReplaysWhatItRecorded) {
  RoundConnector connector;
  RoundConnector meeting_of_graphs;
  OnTheGpu(1, [&](DeviceBackend& gpu, int) {
    return ExpectTheSameByGraphs(gpu, connector, meeting_of_graphs, std::nullopt);
  });
}

TEST(StepOnAGpu, ReplaysSumsOverNccl) {
  RoundConnector connector;
  RoundConnector meeting_of_graphs;
  OnTheGpu(1, [&](DeviceBackend& gpu, int) {
    return ExpectTheSameByGraphs(gpu, connector, meeting_of_graphs, api::Compression::kBf16);
  });
}

TEST(StepOnAGpu, TurnsImagesRoundForTensorCoresOnly) {
  OnTheGpu(1, [&](DeviceBackend& gpu, int) {
    const at::Tensor images = at::rand({2, 3, 8, 8}, at::TensorOptions(at::kFloat).device(gpu.device()));
    REQUIRE(models::ForTensorCores(images).is_contiguous());
    const models::Autocast in_half(api::Precision::kBf16, at::kCUDA);
    REQUIRE(models::ForTensorCores(images).is_contiguous(at::MemoryFormat::ChannelsLast));
    return 0;
  });
}

TEST(StepOnAGpu, MultipliesAsTf32WhereAsked) {
  OnTheGpu(1, [&](DeviceBackend& gpu, int) {
    const at::Tensor factor = at::rand({256, 256}, at::TensorOptions(at::kFloat).device(gpu.device()));
    const auto error = [&](bool allowed) {
      models::AllowTf32(allowed);
      return (at::mm(factor, factor).cpu() - at::mm(factor.cpu(), factor.cpu())).abs().max().item<double>();
    };
    REQUIRE(error(false) < 1e-3);
    REQUIRE(error(true) > error(false));
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::train
