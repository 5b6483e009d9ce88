// Whole steps of strategy: dataparallel on several "devices" of this machine, all of which are its CPU.

#include <gtest/gtest.h>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr double kRounding = 1e-5;  // of gradients and weights, through all steps

api::TrainingSpec Training(double dropout) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kDataparallel;
  spec.model.cnn.dropout = dropout;
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.momentum = 0.9;
  spec.optimizer.learning_rate = 0.05;
  return spec;
}

std::vector<at::Device> Cpus(int count) {
  return std::vector<at::Device>(static_cast<std::size_t>(count), at::kCPU);
}

std::vector<at::Tensor> GradientsOf(const ReplicatedModel& state) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : state.trained()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

double WorstError(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = (found[i] - expected[i]).norm().item<double>();
    worst = std::max(worst, error / expected[i].norm().item<double>());
  }
  return worst;
}

// The largest error between two ways to train, of the mean gradient of each step and of the final weights.
double WorstError(Trainer& first, Trainer& second, comm::Communicator& communicator,
                  parallel::Strategy& of_first, parallel::Strategy& of_second, int64_t steps) {
  double worst = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    LOCKSTEP_CHECK(first.RunRoundWith(of_first, communicator, step).ok());
    LOCKSTEP_CHECK(second.RunRoundWith(of_second, communicator, step).ok());
    worst = std::max(worst, WorstError(GradientsOf(first.replicated()), GradientsOf(second.replicated())));
  }
  return std::max(worst, WorstError(first.replicated().trained(), second.replicated().trained()));
}

// Runs in a separate process with one thread per operation, as the ranks of other tests do.
void Alone(const std::function<int(const std::shared_ptr<comm::Communicator>&)>& body) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    return body(*communicator);
  });
  ExpectAllSucceed(ranks);
}

// Compares `devices` devices with a single one that gets as many samples at once as `pieces` says.
void ExpectWhatOneDeviceDoes(const api::TrainingSpec& spec, int devices, const api::TrainingSpec& of_one,
                             int64_t steps) {
  Alone([&](const std::shared_ptr<comm::Communicator>& communicator) {
    Trainer several(spec, {.devices = Cpus(devices)});
    Trainer one(of_one);
    auto of_several = MakeStrategy(spec, communicator, several.replicated());
    auto strategy_of_one = MakeStrategy(of_one, communicator, one.replicated());
    REQUIRE(of_several.ok() && strategy_of_one.ok());
    const double worst = WorstError(several, one, *communicator, **of_several, **strategy_of_one, steps);
    std::printf("%d devices: relative error %.2g\n", devices, worst);
    REQUIRE(worst <= kRounding);
    REQUIRE(several.replicated().replicas().back().trained.front().grad().defined() == false);
    return 0;
  });
}

TEST(StepOnReplicas, GiveTheGradientsAndWeightsOfOneDeviceWithTheWholeBatch) {
  // Steps of 22, 22 and 6 samples: divided by 2 devices without a remainder, by 3 and 4 with one.
  for (const int devices : {2, 3, 4}) {
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    ExpectWhatOneDeviceDoes(spec, devices, spec, Trainer::kTotalSteps);
  }
}

TEST(StepOnReplicas, AddUpMicroBatchesOfWhichSomeAreSmallerThanTheNumberOfDevices) {
  api::TrainingSpec spec = Training(/*dropout=*/0);
  const api::TrainingSpec whole = spec;
  spec.micro_batch_size = 5;  // 5, 5, 5, 5 and 2 samples
  ExpectWhatOneDeviceDoes(spec, 3, whole, Trainer::kTotalSteps);
}

TEST(StepOnReplicas, DrawTheRandomNumbersOfTheirOwnPlaces) {
  const api::TrainingSpec spec = Training(/*dropout=*/0.5);
  api::TrainingSpec one_by_one = spec;
  one_by_one.micro_batch_size = 11;  // the shares of two devices, while a step is full
  ExpectWhatOneDeviceDoes(spec, 2, one_by_one, /*steps=*/2);
}

std::string BitsOf(const api::TrainingSpec& spec, const std::vector<at::Device>& devices,
                   const std::shared_ptr<comm::Communicator>& communicator) {
  Trainer trainer(spec, {.devices = devices});
  LOCKSTEP_CHECK(trainer.RunRound(communicator, Trainer::kTotalSteps).ok());
  return trainer.Bits();
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
