// strategy: dataparallel on several "devices" of this machine, which are all its CPU.

#include "runtime/train/replicas.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "runtime/parallel/replica_gradients.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::Meeting;
using testing::StartRanks;

constexpr double kRounding = 1e-6;

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

std::vector<at::Tensor> GradientsOf(const TrainingState& state) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : state.trained) gradients.push_back(parameter.grad().clone());
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

// Of the mean gradient of each step, and of the weights after all of them, between two ways to train.
double WorstError(Trainer& first, Trainer& second, comm::Communicator& communicator,
                  parallel::Strategy& of_first, parallel::Strategy& of_second, int64_t steps) {
  double worst = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    LOCKSTEP_CHECK(first.RunRoundWith(of_first, communicator, step).ok());
    LOCKSTEP_CHECK(second.RunRoundWith(of_second, communicator, step).ok());
    worst = std::max(worst, WorstError(GradientsOf(first.state()), GradientsOf(second.state())));
  }
  return std::max(worst, WorstError(first.state().trained, second.state().trained));
}

// In a process of its own with one thread for each operation, as the ranks of other tests.
void Alone(const std::function<int(const std::shared_ptr<comm::Communicator>&)>& body) {
  Meeting meeting;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = meeting.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    return body(*communicator);
  });
  ExpectAllSucceed(ranks);
}

// On so many devices, against one that is given as many samples at once as `pieces` says.
void ExpectWhatOneDeviceDoes(const api::TrainingSpec& spec, int devices, const api::TrainingSpec& of_one,
                             int64_t steps) {
  Alone([&](const std::shared_ptr<comm::Communicator>& communicator) {
    Trainer several(spec, {.devices = Cpus(devices)});
    Trainer one(of_one);
    auto of_several = MakeStrategy(spec, communicator, several.state());
    auto strategy_of_one = MakeStrategy(of_one, communicator, one.state());
    REQUIRE(of_several.ok() && strategy_of_one.ok());
    const double worst = WorstError(several, one, *communicator, **of_several, **strategy_of_one, steps);
    std::printf("%d devices: relative error %.2g\n", devices, worst);
    REQUIRE(worst <= kRounding);
    REQUIRE(several.state().replicas.back().trained.front().grad().defined() == false);
    return 0;
  });
}

TEST(Replicas, GiveTheGradientsAndWeightsOfOneDeviceWithTheWholeBatch) {
  // Steps of 22, 22 and 6 samples: by 2 devices without a rest, by 3 and 4 with one.
  for (const int devices : {2, 3, 4}) {
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    ExpectWhatOneDeviceDoes(spec, devices, spec, Trainer::kTotalSteps);
  }
}

TEST(Replicas, AddUpMicroBatchesOfWhichSomeAreSmallerThanTheNumberOfDevices) {
  api::TrainingSpec spec = Training(/*dropout=*/0);
  const api::TrainingSpec whole = spec;
  spec.micro_batch_size = 5;  // 5, 5, 5, 5 and 2 samples
  ExpectWhatOneDeviceDoes(spec, 3, whole, Trainer::kTotalSteps);
}

TEST(Replicas, DrawTheRandomNumbersOfTheirOwnPlaces) {
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

TEST(Replicas, GiveTheSameBitsEachTime) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    const api::TrainingSpec spec = Training(/*dropout=*/0.5);
    const std::string bits = BitsOf(spec, Cpus(3), communicator);
    for (int again = 0; again < 3; ++again) REQUIRE(BitsOf(spec, Cpus(3), communicator) == bits);
    return 0;
  });
}

TEST(Replicas, OnOneDeviceGiveTheBitsOfDdp) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training(/*dropout=*/0.5);
    const std::string bits = BitsOf(spec, Cpus(1), communicator);
    spec.strategy = api::Strategy::kDdp;
    REQUIRE(BitsOf(spec, Cpus(1), communicator) == bits);
    return 0;
  });
}

TEST(Replicas, AreSearchedForWhatIsNotFinite) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    // Of the second step, in the share of the last device.
    Trainer trainer(spec, {.spoiled = PlanOf(spec).Ids(1, 20, 21), .devices = Cpus(3)});
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
  Meeting meeting;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = meeting.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const api::TrainingSpec spec = Training(/*dropout=*/0);
    const TrainingState state = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value();
    const auto strategy = MakeStrategy(spec, *communicator, state);
    REQUIRE(strategy.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(strategy.error().message.find("spec.training.strategy: dataparallel is one process") == 0);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// A norm, whose running statistics change in each forward pass, and a layer.
class Normed final : public Model {
 public:
  at::Tensor Forward(const at::Tensor& inputs) override { return layer_(norm_(inputs)); }

 private:
  torch::nn::BatchNorm1d norm_{register_module("norm", torch::nn::BatchNorm1d(4))};
  torch::nn::Linear layer_{register_module("layer", torch::nn::Linear(4, 2))};
};

std::vector<Replica> NormedReplicas(int count) {
  std::vector<Replica> replicas;
  for (int i = 0; i < count; ++i) replicas.push_back(ReplicaOf(std::make_shared<Normed>(), at::kCPU));
  return replicas;
}

at::Tensor LossOf(const Part& part) {
  Model& model = *part.replica->model;
  return model.LossSum(model.Forward(part.batch.inputs), part.batch.targets);
}

data::Batch SomeBatch(int64_t samples) {
  return {at::arange(samples * 4, at::kFloat).reshape({samples, 4}), at::zeros({samples}, at::kLong)};
}

TEST(Replicas, FollowTheRunningStatisticsOfTheFirst) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const std::vector<Replica> alone = NormedReplicas(1);
  const data::Batch batch = SomeBatch(9);
  for (int pass = 0; pass < 2; ++pass) {
    CopyBuffers(replicas);
    for (std::size_t i = 0; i < replicas[0].buffers.size(); ++i)
      EXPECT_TRUE(replicas[2].buffers[i].equal(replicas[0].buffers[i])) << "buffer " << i;
    (void)SumOfLosses(Scatter(replicas, {0, 9}, batch), LossOf);
    const data::Batch first = {batch.inputs.narrow(0, 0, 3), batch.targets.narrow(0, 0, 3)};
    (void)SumOfLosses(Scatter(alone, {0, 3}, first), LossOf);
  }
  for (std::size_t i = 0; i < alone[0].buffers.size(); ++i)
    EXPECT_TRUE(replicas[0].buffers[i].equal(alone[0].buffers[i])) << "buffer " << i;
}

TEST(Replicas, ShareABatchInOrder) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const auto slices = [&](Slice piece) {
    std::vector<Slice> found;
    for (const Part& part : Scatter(replicas, piece, SomeBatch(piece.size()))) {
      EXPECT_EQ(part.batch.inputs.size(0), part.places.size());
      EXPECT_EQ(part.batch.inputs[0][0].item<int64_t>(), (part.places.begin - piece.begin) * 4);
      found.push_back(part.places);
    }
    return found;
  };
  EXPECT_EQ(slices({4, 12}), (std::vector<Slice>{{4, 7}, {7, 10}, {10, 12}}));
  EXPECT_EQ(slices({4, 6}), (std::vector<Slice>{{4, 5}, {5, 6}}));
}

TEST(Replicas, GiveBackWhatOneThrew) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const std::vector<Part> parts = Scatter(replicas, {0, 9}, SomeBatch(9));
  const auto throws = [&](const Part& part) -> at::Tensor {
    if (&part == &parts[2]) throw std::runtime_error("of the last");
    return LossOf(part);
  };
  EXPECT_THROW((void)SumOfLosses(parts, throws), std::runtime_error);
}

TEST(ReplicaGradients, AreZeroWithoutASample) {
  const std::vector<Replica> replicas = NormedReplicas(2);
  auto strategy = parallel::MakeReplicaGradients({replicas[0].parameters, replicas[1].parameters});
  ASSERT_TRUE(strategy.ok());
  const std::vector<int64_t> none = {0};
  ASSERT_TRUE((*strategy)->BeginStep(none).ok());
  ASSERT_TRUE((*strategy)->BackwardOfNothing().ok());
  for (const at::Tensor& parameter : replicas[0].trained)
    EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
}

TEST(ReplicaGradients, BeginWithTheParametersOfTheFirst) {
  const std::vector<Replica> replicas = NormedReplicas(2);
  auto strategy = parallel::MakeReplicaGradients({replicas[0].parameters, replicas[1].parameters});
  ASSERT_TRUE(strategy.ok());
  {
    const at::NoGradGuard no_grad;
    replicas[0].parameters.front().fill_(7);
  }
  const std::vector<int64_t> one = {1};
  ASSERT_TRUE((*strategy)->BeginStep(one).ok());
  for (std::size_t i = 0; i < replicas[0].parameters.size(); ++i)
    EXPECT_TRUE(replicas[1].parameters[i].equal(replicas[0].parameters[i])) << "parameter " << i;
}

}  // namespace
}  // namespace lockstep::train
