// strategy: modelparallel, on stand-in devices, which reject operations on tensors of different ones.

#include "runtime/train/replicated/placed_layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <set>

#include "runtime/train/loop/evaluation.h"
#include "runtime/train/loop/warm_up.h"
#include "runtime/train/step/seed.h"
#include "tests/support/stand_in_devices.h"
#include "tests/unit/runtime/train/replicated/one_rank.h"

namespace lockstep::train {
namespace {

using Devices = std::vector<std::size_t>;

std::vector<at::Device> StandIns(int count) {
  std::vector<at::Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(testing::StandInDevice(static_cast<c10::DeviceIndex>(i)));
  return devices;
}

std::shared_ptr<torch::nn::Module> LinearOf(int64_t width) {
  return torch::nn::Linear(torch::nn::LinearOptions(1, width).bias(false)).ptr();
}

std::vector<Layer> LayersWith(const std::vector<std::vector<std::shared_ptr<torch::nn::Module>>>& modules) {
  std::vector<Layer> layers;
  for (const auto& of_layer : modules) layers.push_back({[](const at::Tensor& x) { return x; }, of_layer});
  return layers;
}

TEST(DevicesOfLayers, HaveAboutTheSameNumberOfBytes) {
  const auto layers = LayersWith({{LinearOf(4)}, {LinearOf(1)}, {LinearOf(1)}, {LinearOf(1)}, {LinearOf(1)}});
  EXPECT_EQ(DevicesOfLayers(layers, 1), (Devices{0, 0, 0, 0, 0}));
  EXPECT_EQ(DevicesOfLayers(layers, 2), (Devices{0, 1, 1, 1, 1}));
  EXPECT_EQ(DevicesOfLayers(layers, 3), (Devices{0, 1, 1, 1, 2}));
}

TEST(DevicesOfLayers, LeaveDevicesWithoutOneWhereThereAreFewer) {
  EXPECT_EQ(DevicesOfLayers(LayersWith({{LinearOf(1)}, {LinearOf(9)}}), 4), (Devices{0, 1}));
}

TEST(DevicesOfLayers, AreTheSameForLayersThatShareAParameter) {
  const auto tied = LinearOf(8);
  EXPECT_EQ(DevicesOfLayers(LayersWith({{tied}, {LinearOf(4)}, {LinearOf(4)}, {LinearOf(1), tied}}), 3),
            (Devices{0, 1, 2, 0}));
  const auto other = LinearOf(2);
  // The last layer joins the first two, whose bytes are counted once.
  EXPECT_EQ(DevicesOfLayers(LayersWith({{tied}, {other}, {LinearOf(10)}, {tied, other}}), 2),
            (Devices{0, 0, 1, 0}));
}

class WithoutLayers final : public Model {
 public:
  at::Tensor Forward(const at::Tensor& inputs) override { return linear_(inputs); }

 private:
  torch::nn::Linear linear_{register_module("linear", torch::nn::Linear(2, 2))};
};

class WithAParameterOutside final : public Model {
 public:
  std::vector<Layer> Layers() override {
    return {{[this](const at::Tensor& x) { return inside_(x) * scale_; }, {inside_.ptr()}}};
  }

 private:
  torch::nn::Linear inside_{register_module("inside", torch::nn::Linear(2, 2))};
  at::Tensor scale_{register_parameter("scale", at::ones({1}))};
};

TEST(PlaceLayers, NamesWhatCannotBePlaced) {
  const auto devices = StandIns(2);
  const auto without = PlaceLayers(std::make_shared<WithoutLayers>(), devices);
  ASSERT_EQ(without.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(without.error().message.find("does not say what its layers are"), std::string::npos);
  const auto outside = PlaceLayers(std::make_shared<WithAParameterOutside>(), devices);
  ASSERT_EQ(outside.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(outside.error().message.find("whose scale is in none of them"), std::string::npos);
}

TEST(PlaceLayers, WarnsOfDevicesWithoutALayer) {
  const auto logged_with = [](int devices) {
    const auto model =
        models::MakeModel({.name = api::ModelName::kMlp, .mlp = {.hidden_sizes = {4}}}, {{2}, 2}, 1);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(PlaceLayers(model.value(), StandIns(devices)).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(logged_with(2), "");
  EXPECT_NE(logged_with(3).find("devices without a layer"), std::string::npos);
}

api::TrainingSpec Training() {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kModelparallel;
  spec.model.name = api::ModelName::kMlp;  // stand-in devices have no convolutions
  spec.model.mlp.hidden_sizes = {16, 16, 16};
  spec.micro_batch_size = 7;
  return spec;
}

api::TrainingSpec OnOne(api::TrainingSpec spec) {
  spec.strategy = api::Strategy::kDdp;
  return spec;
}

// Trains on `devices` as on the CPU by ddp.
void ExpectWhatOneDeviceDoes(const api::TrainingSpec& spec, const std::vector<at::Device>& devices) {
  Alone([&](const std::shared_ptr<comm::Communicator>& communicator) {
    Trainer several(spec, {.devices = devices});
    Trainer one(OnOne(spec));
    auto of_several = MakeStrategy(spec, communicator, several.replicated());
    auto of_one = MakeStrategy(OnOne(spec), communicator, one.replicated());
    REQUIRE(of_several.ok() && of_one.ok());
    const double worst =
        WorstError(several, one, *communicator, **of_several, **of_one, Trainer::kTotalSteps);
    std::printf("%zu devices: relative error %.2g\n", devices.size(), worst);
    REQUIRE(worst <= kRounding);
    return 0;
  });
}

TEST(StepOnPlacedLayers, GivesTheGradientsAndWeightsOfOneDevice) {
  for (const int devices : {1, 2, 3, 4}) ExpectWhatOneDeviceDoes(Training(), StandIns(devices));
}

TEST(StepOnPlacedLayers, DoesSoWithLayersOnTheHostToo) {
  ExpectWhatOneDeviceDoes(Training(), {testing::StandInDevice(1), at::kCPU});
  ExpectWhatOneDeviceDoes(Training(), {at::kCPU, testing::StandInDevice(1)});
}

TEST(StepOnPlacedLayers, DoesSoWithEachOptimizer) {
  for (const api::OptimizerName name : {api::OptimizerName::kSgd, api::OptimizerName::kAdamw,
                                        api::OptimizerName::kLamb, api::OptimizerName::kMuon}) {
    SCOPED_TRACE(api::NameOf(name));
    api::TrainingSpec spec = Training();
    spec.optimizer.name = name;
    spec.optimizer.momentum = 0.9;
    spec.optimizer.weight_decay = 0.1;
    spec.optimizer.groups = {{.match = {"fc1.bias"}, .frozen = true},
                             {.match = {"fc2.*"}, .learning_rate_scale = 3}};
    ExpectWhatOneDeviceDoes(spec, StandIns(3));
  }
}

TEST(StepOnPlacedLayers, KeepsEachLayerWithItsOptimizerStateOnItsDevice) {
  const Trainer trainer(Training(), {.devices = StandIns(3)});
  std::map<std::string, at::Device> device_of;
  for (const NamedTensor& named : trainer.state().Tensors())
    device_of.emplace(named.name, named.tensor.device());
  const std::map<std::string, c10::DeviceIndex> expected = {{"fc1", 0}, {"fc2", 1}, {"fc3", 1}, {"fc4", 2}};
  for (const auto& [layer, index] : expected) {
    for (const char* prefix : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
      const std::string name = prefix + layer + ".weight";
      ASSERT_TRUE(device_of.contains(name)) << name;
      EXPECT_EQ(device_of.at(name), testing::StandInDevice(index)) << name;
    }
  }
}

uint64_t SeedOn(at::Device device) { return at::globalContext().defaultGenerator(device).current_seed(); }

// Also of those without a parameter, as their layers may draw some: here two of four.
TEST(StepOnPlacedLayers, SeedsTheRandomNumbersOfEachDeviceForTheMicroBatch) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training();
    spec.micro_batch_size.reset();
    spec.model.mlp.hidden_sizes = {16};
    Trainer trainer(spec, {.devices = StandIns(4)});
    REQUIRE(trainer.replicated().replicas().front().devices == StandIns(4));
    REQUIRE(trainer.RunRound(communicator, 2).ok());
    const uint64_t seed = MicroBatchSeed(spec.seed, /*step=*/1, /*begin=*/0);
    for (const std::size_t i : {0, 1, 2, 3}) REQUIRE(SeedOn(StandIns(4)[i]) == SeedOfDevice(seed, i));
    return 0;
  });
}

TEST(StepOnPlacedLayers, ComputesLayersAgainToTheSameBits) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training();
    const std::string bits = BitsOf(spec, StandIns(3), communicator);
    spec.gradient_checkpointing = true;
    REQUIRE(BitsOf(spec, StandIns(3), communicator) == bits);
    return 0;
  });
}

TEST(StepOnPlacedLayers, OnOneDeviceGivesTheBitsOfDdp) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training();
    spec.model.name = api::ModelName::kCnn;  // has dropout
    const std::string bits = BitsOf(OnOne(spec), Cpus(1), communicator);
    for (const int devices : {1, 3}) REQUIRE(BitsOf(spec, Cpus(devices), communicator) == bits);
    return 0;
  });
}

TEST(StepOnPlacedLayers, SkipsAStepThatIsNotFinite) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    Trainer trainer(Training(), {.non_finite = PlanOf(Training()).Ids(1, 20, 21), .devices = StandIns(3)});
    REQUIRE(trainer.RunRound(communicator, 1).ok());
    const std::string before = trainer.StateBytes();
    REQUIRE(trainer.RunRound(communicator, 2).ok());
    REQUIRE(!trainer.last().applied);
    REQUIRE(trainer.last().not_finite == "rank 0: loss, gradient of fc4.bias");
    REQUIRE(trainer.StateBytes() == before);
    return 0;
  });
}

TEST(StepOnPlacedLayers, LeavesOutAMicroBatchWithoutAValidSample) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training();
    spec.data.on_corrupt_record = api::OnCorruptRecord::kSkip;
    const TrainerOptions options{.corrupt = PlanOf(spec).Ids(0, 7, 14), .devices = StandIns(3)};
    Trainer trainer(spec, options);
    const auto ran = trainer.RunRound(communicator, 1);
    REQUIRE(ran.ok());
    REQUIRE(trainer.last().applied);
    REQUIRE(trainer.last().local_corrupt == 7);
    return 0;
  });
}

TEST(StepOnPlacedLayers, IsEvaluatedWithTheAverageOfTheWeightsAsOnOneDevice) {
  Alone([](const std::shared_ptr<comm::Communicator>& communicator) {
    api::TrainingSpec spec = Training();
    spec.optimizer.weight_average = api::WeightAverageSpec{.decay = 0.8};
    spec.evaluation = api::EvaluationSpec{.batch_size = 4};
    std::vector<double> losses;
    for (const auto& [of, devices] : {std::pair(spec, StandIns(3)), std::pair(OnOne(spec), Cpus(1))}) {
      const data::Datasets datasets = data::OpenDatasets(of).value();
      Trainer trainer(of, {.devices = devices});
      REQUIRE(WarmUp(of, *datasets.train, trainer.state()).ok());
      REQUIRE(trainer.RunRound(communicator, Trainer::kTotalSteps).ok());
      Evaluator evaluator(of, trainer.state(), *datasets.test);
      const std::vector<double> speeds = {1};
      const auto found = evaluator.Run(*communicator, speeds, [] { return false; }, {});
      REQUIRE(found.ok());
      losses.push_back(found->loss);
    }
    REQUIRE(std::abs(losses[0] - losses[1]) <= kRounding * losses[1]);
    return 0;
  });
}

// A gpt has the matrix of its embedding in its last layer, too.
TEST(PlaceLayers, ComputesATiedModelAsOnOneDevice) {
  api::ModelSpec spec;
  spec.name = api::ModelName::kGpt;
  spec.gpt = {.layers = 3, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 32};
  const ModelInput input{{8}, 32};
  Alone([&](const std::shared_ptr<comm::Communicator>&) {
    const auto on_one = models::MakeModel(spec, input, /*seed=*/3).value();
    const auto devices = StandIns(3);
    const auto placed = PlaceLayers(models::MakeModel(spec, input, /*seed=*/3).value(), devices).value();
    const at::Tensor tokens = at::arange(16).reshape({2, 8});
    const at::Tensor targets = tokens + 1;
    const at::Tensor outputs = placed->Forward(tokens.to(devices.front()));
    const at::Tensor expected_outputs = on_one->Forward(tokens);
    const at::Tensor loss = placed->LossSum(outputs, targets);
    const at::Tensor expected = on_one->LossSum(expected_outputs, targets);
    REQUIRE(loss.device() == devices.front());
    REQUIRE(std::abs(loss.item<double>() - expected.item<double>()) <= kRounding);
    REQUIRE(placed->CountRight(outputs, targets) == on_one->CountRight(expected_outputs, targets));
    loss.backward();
    expected.backward();
    std::set<std::string> used;
    for (const auto& parameter : placed->named_parameters()) {
      const at::Tensor& of_one = on_one->named_parameters()[parameter.key()].grad();
      used.insert(parameter.value().device().str());
      REQUIRE(parameter.value().grad().cpu().allclose(of_one, 1e-4, 1e-6));
    }
    REQUIRE(used.size() == 3);
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::train
