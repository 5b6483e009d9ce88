// training.gradientCheckpointing with each strategy: the same steps, bit for bit.

#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

api::TrainingSpec Training(api::Strategy strategy) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = strategy;
  spec.micro_batch_size = 4;
  spec.sync.every_steps = strategy == api::Strategy::kLocalsgd ? 2 : 1;
  return spec;
}

// Loss and gradient norm of the last step of each rank, and the weights where each rank has all of them.
std::vector<std::string> ResultsOf(const api::TrainingSpec& spec, int world, int devices) {
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.devices = std::vector<at::Device>(static_cast<std::size_t>(devices), at::kCPU)});
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    REQUIRE(trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
    std::ostringstream text;
    text << std::hexfloat << trainer.last().loss << " " << trainer.last().gradient_norm;
    if (!api::DividesLayers(spec.strategy)) text << " " << std::hash<std::string>{}(trainer.WeightBytes());
    parent.Send(text.str());
    return 0;
  });
  std::vector<std::string> results;
  for (auto& rank : ranks) results.push_back(rank.channel().Receive(kPatience).value_or("nothing"));
  ExpectAllSucceed(ranks);
  return results;
}

struct Case {
  api::Strategy strategy;
  int world = 2;
  int devices = 1;
};

TEST(GradientCheckpointingOfStrategies, ChangesNoBit) {
  // With async, which rank takes which samples depends on time, so it runs alone.
  const std::array<Case, 7> cases = {{{api::Strategy::kDdp},
                                      {api::Strategy::kZero1},
                                      {api::Strategy::kPipeline},
                                      {api::Strategy::kHybrid, 4},
                                      {api::Strategy::kDataparallel, 1, 2},
                                      {api::Strategy::kLocalsgd},
                                      {api::Strategy::kAsync, 1}}};
  for (const Case& of : cases) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    api::TrainingSpec spec = Training(of.strategy);
    const std::vector<std::string> plain = ResultsOf(spec, of.world, of.devices);
    ASSERT_NE(plain.front(), "nothing");
    spec.gradient_checkpointing = true;
    EXPECT_EQ(ResultsOf(spec, of.world, of.devices), plain);
  }
}

TEST(GradientCheckpointingOfStrategies, ChangesNoBitWithDeterminismWorld) {
  api::TrainingSpec spec = Training(api::Strategy::kDdp);
  spec.determinism = api::Determinism::kWorld;
  const std::vector<std::string> plain = ResultsOf(spec, 1, 1);
  spec.gradient_checkpointing = true;
  EXPECT_EQ(ResultsOf(spec, 3, 1), std::vector<std::string>(3, plain.front()));
}

TEST(GradientCheckpointingOfStrategies, IsUsedByTheModelOfEachState) {
  for (const api::Strategy strategy : {api::Strategy::kDdp, api::Strategy::kPipeline}) {
    api::TrainingSpec spec = Training(strategy);
    spec.gradient_checkpointing = true;
    Trainer trainer(spec);
    const at::Tensor output = trainer.state().model->Layers().front().forward(at::ones({1, 1, 8, 8}));
    EXPECT_NE(output.grad_fn()->name().find("Recomputed"), std::string::npos) << output.grad_fn()->name();
  }
}

}  // namespace
}  // namespace lockstep::train
