#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/models/channels_last.h"
#include "runtime/models/model.h"
#include "runtime/models/precision.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSeed = 7;
const ModelInput kMnist{.sample_shape = {1, 28, 28}, .classes = 10};

api::ModelSpec Cnn(std::vector<int64_t> channels) {
  return {.name = api::ModelName::kCnn, .cnn = {.channels = std::move(channels)}};
}

// With the default loss of models.
class Classifier final : public Model {
 public:
  at::Tensor Forward(const at::Tensor& inputs) override { return inputs; }
};

std::vector<std::string> NamesOf(const Model& model) { return model.named_parameters().keys(); }

TEST(Mlp, GivesOneValuePerClass) {
  for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{}, {5}, {16, 8}}) {
    const auto model = MakeModel({.mlp = {hidden}}, {.sample_shape = {3, 4}, .classes = 6}, kSeed);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ((*model)->Forward(torch::randn({2, 3, 4})).sizes(), (std::vector<int64_t>{2, 6}));
    EXPECT_EQ((*model)->parameters().size(), 2 * (hidden.size() + 1));
  }
}

TEST(Mlp, NamesItsParametersLikePyTorch) {
  const auto model = MakeModel({.mlp = {{8}}}, kMnist, kSeed);
  EXPECT_THAT(NamesOf(**model), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
}

TEST(Cnn, GivesOneValuePerClass) {
  for (const std::vector<int64_t>& channels : {std::vector<int64_t>{}, {4}, {4, 6, 8}}) {
    const auto model = MakeModel(Cnn(channels), {.sample_shape = {3, 9, 14}, .classes = 6}, kSeed);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    EXPECT_EQ((*model)->Forward(torch::randn({2, 3, 9, 14})).sizes(), (std::vector<int64_t>{2, 6}));
  }
}

TEST(Cnn, NamesItsParametersLikePyTorch) {
  const auto model = MakeModel(Cnn({4, 8}), kMnist, kSeed);
  EXPECT_THAT(NamesOf(**model), ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                            "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
}

// With one channel the two orders are the same bytes; convolutions depend on the strides.
TEST(ChannelsLast, SaysSoInTheStridesAndKeepsTheValues) {
  for (const int64_t channels : {1, 3}) {
    const at::Tensor images = torch::randn({2, channels, 4, 5});
    const at::Tensor same = ChannelsLast(images);
    EXPECT_EQ(same.strides(), (std::vector<int64_t>{20 * channels, 1, 5 * channels, channels}));
    EXPECT_TRUE(same.equal(images));
  }
}

TEST(Cnn, DropsOutInTrainingOnly) {
  const auto model = MakeModel(Cnn({4}), kMnist, kSeed);
  const at::Tensor inputs = torch::randn({4, 1, 28, 28});
  (*model)->eval();
  EXPECT_TRUE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
  (*model)->train();
  EXPECT_FALSE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
}

TEST(Cnn, RefusesSamplesThatItCannotPoolByField) {
  const std::vector<int64_t> deep(70, 2);
  const std::pair<api::ModelSpec, std::vector<int64_t>> cases[] = {
      {Cnn({4, 8}), {3, 3, 28}},  {Cnn({4, 8}), {3, 28, 3}}, {Cnn({4}), {784}}, {Cnn({4}), {}},
      {Cnn({4}), {1, 1, 28, 28}}, {Cnn(deep), {1, 28, 28}}};
  for (const auto& [spec, shape] : cases) {
    const auto model = MakeModel(spec, {.sample_shape = shape, .classes = 2}, kSeed);
    ASSERT_FALSE(model.ok()) << at::IntArrayRef(shape);
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(model.error().message, HasSubstr("spec.training.model.cnn.channels"));
  }
}

// Sizes from torchvision 0.24's resnet18 and resnet50 with ten classes and three input channels.
TEST(Resnet, IsTheOneOfTorchvision) {
  const std::pair<api::ModelName, int64_t> cases[] = {{api::ModelName::kResnet18, 11'181'642},
                                                      {api::ModelName::kResnet50, 23'528'522}};
  for (const auto& [name, size] : cases) {
    const auto model = MakeModel({.name = name}, {.sample_shape = {3, 64, 64}, .classes = 10}, kSeed);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    int64_t count = 0;
    for (const at::Tensor& parameter : (*model)->parameters()) count += parameter.numel();
    EXPECT_EQ(count, size);
    EXPECT_EQ((*model)->Forward(torch::randn({2, 3, 64, 64})).sizes(), (std::vector<int64_t>{2, 10}));
    const std::vector<std::string> names = NamesOf(**model);
    EXPECT_THAT(names, ::testing::IsSupersetOf({"conv1.weight", "bn1.weight", "layer1.0.conv1.weight",
                                                "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias",
                                                "layer4.1.bn2.weight", "fc.bias"}));
    EXPECT_TRUE((*model)->named_buffers().contains("layer4.1.bn2.running_mean"));
  }
}

TEST(Resnet, KeepsSmallImagesLarge) {
  const api::ModelSpec spec{.name = api::ModelName::kResnet18, .resnet = {.small_images = true}};
  const auto model = MakeModel(spec, kMnist, kSeed);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->named_parameters()["conv1.weight"].sizes(), (std::vector<int64_t>{64, 1, 3, 3}));
  EXPECT_EQ((*model)->Forward(torch::randn({2, 1, 28, 28})).sizes(), (std::vector<int64_t>{2, 10}));
}

TEST(Resnet, RefusesWhatIsNoImage) {
  const auto model =
      MakeModel({.name = api::ModelName::kResnet18}, {.sample_shape = {784}, .classes = 10}, kSeed);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, HasSubstr("spec.training.model.name"));
}

api::ModelSpec SmallGpt() {
  return {.name = api::ModelName::kGpt,
          .gpt = {.layers = 2, .heads = 2, .embedding_size = 8, .context_length = 6, .vocabulary_size = 11}};
}
const ModelInput kSequences{.sample_shape = {6}, .classes = 11};

TEST(Gpt, HasTheSizeOfGpt2) {
  const auto model = MakeModel({.name = api::ModelName::kGpt, .gpt = {.vocabulary_size = 50257}},
                               {.sample_shape = {1024}, .classes = 50257}, kSeed);
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  int64_t count = 0;
  for (const at::Tensor& parameter : (*model)->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 124'439'808);
  EXPECT_THAT(NamesOf(**model),
              ::testing::IsSupersetOf({"wte.weight", "wpe.weight", "h.0.ln_1.weight",
                                       "h.0.attn.c_attn.weight", "h.11.attn.c_proj.bias",
                                       "h.11.mlp.c_fc.weight", "h.11.mlp.c_proj.weight", "ln_f.bias"}));
}

TEST(Gpt, SeesNothingOfWhatFollows) {
  const auto model = MakeModel(SmallGpt(), kSequences, kSeed);
  ASSERT_TRUE(model.ok());
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = torch::randint(11, {1, 6}, at::kLong);
  at::Tensor other = tokens.clone();
  other[0][4] = (other[0][4] + 1) % 11;
  const at::Tensor logits = (*model)->Forward(tokens);
  const at::Tensor changed = (*model)->Forward(other);
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{1, 6, 11}));
  EXPECT_TRUE(at::allclose(logits.slice(1, 0, 4), changed.slice(1, 0, 4)));
  EXPECT_FALSE(at::allclose(logits.slice(1, 4), changed.slice(1, 4)));
}

TEST(Gpt, BeginsAsNanoGpt) {
  const auto model =
      MakeModel({.name = api::ModelName::kGpt,
                 .gpt = {.layers = 8, .heads = 4, .embedding_size = 128, .vocabulary_size = 256}},
                {.sample_shape = {64}, .classes = 256}, kSeed);
  const auto parameters = (*model)->named_parameters();
  EXPECT_NEAR(parameters["wte.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["h.3.mlp.c_fc.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["h.3.mlp.c_proj.weight"].std().item<double>(), 0.02 / 4, 0.0005);
  EXPECT_EQ(parameters["h.3.ln_1.weight"].min().item<double>(), 1);
  EXPECT_EQ(parameters["h.3.attn.c_attn.bias"].abs().max().item<double>(), 0);
  // So all tokens are about equally likely.
  const at::Tensor tokens = torch::randint(256, {2, 64}, at::kLong);
  EXPECT_NEAR(Classifier().LossSum((*model)->Forward(tokens), tokens.roll(1, 1)).item<double>() / 2,
              std::log(256), 0.2);
}

TEST(Gpt, RefusesDataThatDoesNotFitByField) {
  const std::pair<ModelInput, const char*> cases[] = {
      {{.sample_shape = {7}, .classes = 11}, "spec.training.model.name"},
      {{.sample_shape = {1, 28, 28}, .classes = 10}, "spec.training.model.name"},
      {{.sample_shape = {6}, .classes = 12}, "spec.training.model.gpt.vocabularySize"}};
  for (const auto& [input, field] : cases) {
    const auto model = MakeModel(SmallGpt(), input, kSeed);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.error().message, HasSubstr(field));
  }
}

TEST(Autocast, ComputesInBfloat16ForItsScopeOnly) {
  const auto model = MakeModel({.mlp = {{64}}}, kMnist, kSeed);
  const at::Tensor inputs = torch::randn({4, 1, 28, 28});
  const at::Tensor targets = torch::randint(10, {4}, at::kLong);
  at::Tensor logits;
  at::Tensor loss;
  {
    const Autocast precision(api::Precision::kBf16, at::kCPU);
    logits = (*model)->Forward(inputs);
    loss = Classifier().LossSum(logits, targets);
  }
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  EXPECT_EQ((*model)->parameters().front().grad().scalar_type(), at::kFloat);
  EXPECT_EQ((*model)->Forward(inputs).scalar_type(), at::kFloat);
  const Autocast nothing(api::Precision::kFp32, at::kCPU);
  EXPECT_EQ((*model)->Forward(inputs).scalar_type(), at::kFloat);
}

TEST(AllowTf32, IsForTheWholeProcess) {
  for (const bool allowed : {true, false}) {
    AllowTf32(allowed);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), allowed);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), allowed);
  }
}

TEST(MakeModel, TheSeedAloneDecidesTheParameters) {
  for (const auto name : {api::ModelName::kMlp, api::ModelName::kCnn, api::ModelName::kResnet18}) {
    const auto first = MakeModel({.name = name}, kMnist, kSeed);
    (void)torch::randn({13});
    const auto second = MakeModel({.name = name}, kMnist, kSeed);
    const auto other = MakeModel({.name = name}, kMnist, kSeed + 1);
    for (const auto& parameter : (*first)->named_parameters()) {
      if (parameter.value().dim() == 1 && name == api::ModelName::kResnet18)
        continue;  // norms begin with ones
      EXPECT_TRUE(at::equal(parameter.value(), (*second)->named_parameters()[parameter.key()]));
      EXPECT_FALSE(at::equal(parameter.value(), (*other)->named_parameters()[parameter.key()]));
    }
  }
}

TEST(LossSum, IsASumThatDoesNotDependOnHowTheBatchIsCut) {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({10, 4});
  const at::Tensor targets = torch::randint(4, {10}, at::kLong);
  const at::Tensor whole = Classifier().LossSum(logits, targets);
  const at::Tensor head = Classifier().LossSum(logits.slice(0, 0, 3), targets.slice(0, 0, 3));
  const at::Tensor tail = Classifier().LossSum(logits.slice(0, 3), targets.slice(0, 3));
  EXPECT_NEAR(whole.item<double>(), (head + tail).item<double>(), 1e-5);
}

TEST(LossSum, OfASequenceIsTheMeanOfItsPlaces) {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({3, 5, 4});
  const at::Tensor targets = torch::randint(4, {3, 5}, at::kLong);
  double expected = 0;
  for (int64_t i = 0; i < 3; ++i)
    expected += torch::nn::functional::cross_entropy(logits[i], targets[i]).item<double>();
  EXPECT_NEAR(Classifier().LossSum(logits, targets).item<double>(), expected, 1e-5);
  EXPECT_DOUBLE_EQ(Classifier().CountRight(torch::one_hot(targets, 4), targets), 3);
  at::Tensor one_wrong = targets.clone();
  one_wrong[0][0] = (one_wrong[0][0] + 1) % 4;
  EXPECT_DOUBLE_EQ(Classifier().CountRight(torch::one_hot(one_wrong, 4), targets), 2.8);
}

TEST(CountRight, TakesTheHighestLogit) {
  const at::Tensor logits = torch::tensor({{9.0F, 0.0F}, {0.0F, 9.0F}, {0.0F, 9.0F}});
  const at::Tensor targets = torch::tensor({0, 1, 0}, at::kLong);
  EXPECT_EQ(Classifier().CountRight(logits, targets), 2);
  EXPECT_NEAR(Classifier().LossSum(logits, targets).item<double>(), 9.0, 1e-2);
}

TEST(LossSum, OfNoSamplesIsNothing) {
  const at::Tensor none = torch::empty({0}, at::kLong);
  EXPECT_EQ(Classifier().LossSum(torch::empty({0, 4}), none).item<double>(), 0);
  EXPECT_EQ(Classifier().CountRight(torch::empty({0, 4}), none), 0);
}

}  // namespace
}  // namespace lockstep::models
