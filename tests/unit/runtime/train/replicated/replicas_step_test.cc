// Whole steps of strategy: dataparallel on several devices: the CPU several times, or stand-ins.

#include <gtest/gtest.h>

#include "tests/support/stand_in_devices.h"
#include "tests/unit/runtime/train/replicated/one_rank.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

api::TrainingSpec Training(double dropout) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kDataparallel;
  spec.model.cnn.dropout = dropout;
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.momentum = 0.9;
  spec.optimizer.learning_rate = 0.05;
  return spec;
}

// Compares several devices with one that trains by `of_one`.
void ExpectWhatOneDeviceDoes(const api::TrainingSpec& spec, const std::vector<at::Device>& devices,
                             const api::TrainingSpec& of_one, int64_t steps) {
  Alone([&](const std::shared_ptr<comm::Communicator>& communicator) {
    Trainer several(spec, {.devices = devices});
    Trainer one(of_one);
    auto of_several = MakeStrategy(spec, communicator, several.replicated());
    auto strategy_of_one = MakeStrategy(of_one, communicator, one.replicated());
    REQUIRE(of_several.ok() && strategy_of_one.ok());
    const double worst = WorstError(several, one, *communicator, **of_several, **strategy_of_one, steps);
    std::printf("%zu devices: relative error %.2g\n", devices.size(), worst);
    REQUIRE(worst <= kRounding);
    REQUIRE(several.replicated().replicas().back().trained.front().grad().defined() == false);
    return 0;
  });
}

TEST(StepOnReplicas, GiveTheGradientsAndWeightsOfOneDeviceWithTheWholeBatch) {
  // Steps of 22, 22 and 6 samples: divided by 2 devices without a remainder, by 3 and 4 with one.
  for (const int devices : {2, 3, 4}) {
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    ExpectWhatOneDeviceDoes(spec, Cpus(devices), spec, Trainer::kTotalSteps);
  }
}

TEST(StepOnReplicas, KeepWhatIsOnOneDeviceApartFromTheOthers) {
  api::TrainingSpec spec = Training(/*dropout=*/0);
  spec.model.name = api::ModelName::kMlp;  // stand-in devices have no convolutions
  ExpectWhatOneDeviceDoes(spec, {testing::StandInDevice(0), testing::StandInDevice(1), at::kCPU}, spec,
                          Trainer::kTotalSteps);
}

TEST(StepOnReplicas, AddUpMicroBatchesOfWhichSomeAreSmallerThanTheNumberOfDevices) {
  api::TrainingSpec spec = Training(/*dropout=*/0);
  const api::TrainingSpec whole = spec;
  spec.micro_batch_size = 5;  // 5, 5, 5, 5 and 2 samples
  ExpectWhatOneDeviceDoes(spec, Cpus(3), whole, Trainer::kTotalSteps);
}

TEST(StepOnReplicas, DrawTheRandomNumbersOfTheirOwnPlaces) {
  const api::TrainingSpec spec = Training(/*dropout=*/0.5);
  api::TrainingSpec one_by_one = spec;
  one_by_one.micro_batch_size = 11;  // the shares of two devices, while a step is full
  ExpectWhatOneDeviceDoes(spec, Cpus(2), one_by_one, /*steps=*/2);
}

TEST(StepOnReplicas, GiveTheSameBitsEachTime) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    const api::TrainingSpec spec = Training(/*dropout=*/0.5);
    const std::string bits = BitsOf(spec, Cpus(3), communicator);
    for (int again = 0; again < 3; ++again) REQUIRE(BitsOf(spec, Cpus(3), communicator) == bits);
    return 0;
  });
}

TEST(StepOnReplicas, OnOneDeviceGiveTheBitsOfDdp) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training(/*dropout=*/0.5);
    const std::string bits = BitsOf(spec, Cpus(1), communicator);
    spec.strategy = api::Strategy::kDdp;
    REQUIRE(BitsOf(spec, Cpus(1), communicator) == bits);
    return 0;
  });
}

TEST(StepOnReplicas, AreSearchedForWhatIsNotFinite) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    // In the second step, in the share of the last device.
    Trainer trainer(spec, {.non_finite = PlanOf(spec).Ids(1, 20, 21), .devices = Cpus(3)});
    REQUIRE(trainer.RunRound(communicator, 1).ok());
    const std::string before = trainer.StateBytes();
    REQUIRE(trainer.RunRound(communicator, 2).ok());
    REQUIRE(!trainer.last().applied);
    REQUIRE(trainer.last().not_finite == "rank 0: loss, gradient of fc2.bias");
    REQUIRE(trainer.StateBytes() == before);
    return 0;
  });
}

TEST(MakeStrategy, RefusesSeveralRanksOfOneProcess) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    const auto state = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value();
    const auto strategy = MakeStrategy(spec, *communicator, testing::ReplicatedOf(*state));
    REQUIRE(strategy.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(strategy.error().message.find("spec.training.strategy: dataparallel is one process") == 0);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train
