#include "runtime/models/torchscript.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/common/base/file.h"
#include "runtime/models/precision.h"
#include "tests/support/script_modules.h"

namespace lockstep::models {
namespace {

using test::ScriptModule;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ModelInput kScriptInput{.sample_shape = {1, 28, 28}, .classes = 10};

class TorchscriptTest : public testing::Test {
 protected:
  TorchscriptTest() { std::filesystem::create_directories(folder_); }
  ~TorchscriptTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  Result<std::shared_ptr<Model>> Open(const torch::jit::Module& module,
                                      const ModelInput& input = kScriptInput,
                                      api::TorchscriptLoss loss = api::TorchscriptLoss::kCrossEntropy) const {
    module.save(Path("m.pt"));
    return MakeTorchscriptModel({.path = Path("m.pt"), .loss = loss}, input);
  }

  void ExpectRefused(const Result<std::shared_ptr<Model>>& model, const std::string& words) const {
    ASSERT_FALSE(model.ok()) << words;
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(model.error().message, AllOf(HasSubstr("spec.training.model.torchscript.path: " + folder_),
                                             HasSubstr(words), HasSubstr("; ")));
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos) << model.error().message;
  }

 private:
  const std::string folder_ = testing::TempDir() + "torchscript-" + std::to_string(::getpid());
};

double Train(Model& model, const at::Tensor& inputs, const at::Tensor& targets, uint64_t seed) {
  torch::manual_seed(seed);  // for dropout
  const at::Tensor loss = model.LossSum(model.Forward(inputs), targets);
  loss.backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model.parameters()) {
    parameter.sub_(parameter.grad(), 0.01);
    parameter.mutable_grad().reset();
  }
  return loss.item<double>();
}

// The losses of some steps, with a smaller batch in each second one.
std::vector<double> Losses(Model& model) {
  torch::manual_seed(5);
  const at::Tensor inputs = torch::randn({8, 1, 28, 28});
  const at::Tensor targets = torch::randint(10, {8}, at::kLong);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    const int64_t size = step % 2 == 0 ? 8 : 5;
    losses.push_back(Train(model, inputs.narrow(0, 0, size), targets.narrow(0, 0, size), 20 + step));
  }
  return losses;
}

TEST_F(TorchscriptTest, HasTheNamesOfItsFile) {
  const auto model = Open(test::ScriptNormCnn());
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  EXPECT_THAT((*model)->named_parameters().keys(),
              ElementsAre("conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "fc1.weight", "fc1.bias"));
  EXPECT_THAT((*model)->named_buffers().keys(),
              ElementsAre("bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"));
}

TEST_F(TorchscriptTest, TrainsToTheSameBitsAsTheMlp) {
  const auto native = MakeModel({.mlp = {{32, 16}}}, kScriptInput, 7);
  ASSERT_TRUE(native.ok());
  const auto weights = (*native)->named_parameters();
  const auto layer = [&](const std::string& name) {
    return std::pair(name, test::ScriptLinear(weights[name + ".weight"], weights[name + ".bias"]));
  };
  const auto script =
      Open(ScriptModule("x = torch.relu(self.fc1.forward(x.flatten(1)))\n"
                        "  return self.fc3.forward(torch.relu(self.fc2.forward(x)))",
                        {}, {}, {layer("fc1"), layer("fc2"), layer("fc3")}));
  ASSERT_TRUE(script.ok()) << script.error().ToString();
  EXPECT_EQ(Losses(**script), Losses(**native));
}

TEST_F(TorchscriptTest, TrainsAsTheCnnAndDropsTheSame) {
  const auto native =
      MakeModel({.name = api::ModelName::kCnn, .cnn = {.channels = {4}, .hidden_size = 16, .dropout = 0.5}},
                kScriptInput, 7);
  ASSERT_TRUE(native.ok());
  const auto weights = (*native)->named_parameters();
  const auto linear = [&](const std::string& name) {
    return std::pair(name, test::ScriptLinear(weights[name + ".weight"], weights[name + ".bias"]));
  };
  const auto script =
      Open(ScriptModule("x = torch.max_pool2d(torch.relu(self.conv1.forward(x)), [2, 2])\n"
                        "  x = torch.relu(self.fc1.forward(x.flatten(1)))\n"
                        "  return self.fc2.forward(torch.dropout(x, 0.5, self.training))",
                        {}, {},
                        {{"conv1", test::ScriptConvolution(weights["conv1.weight"], weights["conv1.bias"])},
                         linear("fc1"),
                         linear("fc2")}));
  ASSERT_TRUE(script.ok()) << script.error().ToString();
  // Its images are channels-last: sums have another order.
  EXPECT_THAT(Losses(**script), testing::Pointwise(testing::DoubleNear(1e-4), Losses(**native)));
}

TEST_F(TorchscriptTest, FollowsTrainAndEval) {
  const auto model = Open(test::ScriptNormCnn());
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  const auto buffers = (*model)->named_buffers();
  EXPECT_EQ(buffers["bn1.num_batches_tracked"].item<int64_t>(), 0) << "opening counts as no batch";
  const at::Tensor inputs = torch::randn({4, 1, 28, 28});
  (*model)->eval();
  EXPECT_TRUE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
  EXPECT_EQ(buffers["bn1.num_batches_tracked"].item<int64_t>(), 0);
  (*model)->train();
  EXPECT_FALSE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
  EXPECT_EQ(buffers["bn1.num_batches_tracked"].item<int64_t>(), 2);
  EXPECT_NE(buffers["bn1.running_mean"].abs().max().item<double>(), 0);
}

TEST_F(TorchscriptTest, ComputesInTheFormatOfAutocast) {
  const auto model = Open(test::ScriptNormCnn());
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  const at::Tensor inputs = torch::randn({4, 1, 28, 28});
  {
    const Autocast precision(api::Precision::kBf16, at::kCPU);
    EXPECT_EQ((*model)->Forward(inputs).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ((*model)->Forward(inputs).scalar_type(), at::kFloat);
}

TEST_F(TorchscriptTest, CountsATensorWithTwoNamesOnce) {
  const at::Tensor shared = torch::randn({784, 784}).set_requires_grad(true);
  torch::jit::Module module("__torch__.Tied");
  for (const char* name : {"a", "b"}) module.register_parameter(name, shared, false);
  module.define("def forward(self, x):\n  return torch.linear(torch.linear(x.flatten(1), self.a), self.b)\n");
  const auto model = Open(module, {.sample_shape = {1, 28, 28}, .classes = 784});
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  EXPECT_THAT((*model)->named_parameters().keys(), ElementsAre("a"));
}

TEST_F(TorchscriptTest, LearnsANumberByTheMeanSquaredError) {
  const auto model =
      Open(ScriptModule("return torch.linear(x, self.w)", {{"w", torch::tensor({{1.0, 2.0}})}}),
           {.sample_shape = {2}, .classes = 9}, api::TorchscriptLoss::kMeanSquaredError);
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  const at::Tensor outputs = (*model)->Forward(torch::tensor({{1.0, 1.0}, {0.0, 2.2}}));  // 3 and 4.4
  const at::Tensor targets = torch::tensor({1, 4}, at::kLong);
  EXPECT_NEAR((*model)->LossSum(outputs, targets).item<double>(), 4 + 0.16, 1e-5);
  EXPECT_EQ((*model)->CountRight(outputs, targets), 1);
}

TEST_F(TorchscriptTest, RefusesWhatCannotBeTrained) {
  const test::Tensors weight = {{"w", torch::randn({10, 784})}};
  const std::string linear = "return torch.linear(x.flatten(1), self.w)";
  torch::jit::Module without("__torch__.Module");
  without.register_parameter("w", torch::randn({10, 784}).set_requires_grad(true), false);
  torch::jit::Module pair("__torch__.Pair");
  pair.define("def forward(self, x, y):\n  return x + y\n");
  torch::jit::Module wide = ScriptModule(linear, {{"w", torch::randn({10, 784}, at::kDouble)}});
  const std::pair<torch::jit::Module, const char*> cases[] = {
      {without, "has no forward"},
      {pair, "forward must take one tensor"},
      {ScriptModule("return (x, x)", weight), "forward must take one tensor"},
      {ScriptModule("return x.flatten(1)"), "has no parameter to train"},
      {wide, "has w of Double; save model.float()"},
      {ScriptModule("return torch.linear(x, self.w)", weight),
       "does not take a batch of float32 [2, 1, 28, 28]"},
      {ScriptModule("return torch.linear(x.view([2, 784]), self.w)", weight),
       "does not take a batch of float32 [3, 1, 28, 28]: shape '[2, 784]' is invalid"},
      {ScriptModule("return torch.linear(x.flatten(1), self.w).narrow(0, 0, 2)", weight),
       "gives Float [2, 10] for a batch of float32 [3, 1, 28, 28]"},
      {ScriptModule("return torch.linear(x.flatten(1), self.w[0:9])", weight),
       "crossEntropy needs [n, classes]"},
      {ScriptModule("return torch.linear(torch.dropout(x.flatten(1), 0.5, True), self.w)", weight),
       "was traced: its dropout cannot change"}};
  for (const auto& [module, words] : cases) ExpectRefused(Open(module), words);
  ExpectRefused(Open(ScriptModule(linear, weight), kScriptInput, api::TorchscriptLoss::kMeanSquaredError),
                "meanSquaredError needs one value for each sample");
}

TEST_F(TorchscriptTest, RefusesWhatIsNoTorchscript) {
  const auto open = [&](const std::string& name) {
    return MakeTorchscriptModel({.path = Path(name)}, kScriptInput);
  };
  ExpectRefused(open("absent.pt"), "is not a readable file");
  ExpectRefused(MakeTorchscriptModel({.path = Path("absent.pt")}, kScriptInput), "is not a readable file");
  ExpectRefused(open("."), "is not a readable file");
  ASSERT_TRUE(WriteFile(Path("text.pt"), "import torch\n").ok());
  ExpectRefused(open("text.pt"), "is not a loadable TorchScript file");
  c10::Dict<std::string, at::Tensor> weights;
  weights.insert("w", torch::randn({2}));
  const std::vector<char> pickled = torch::pickle_save(weights);
  ASSERT_TRUE(WriteFile(Path("weights.pt"), {pickled.data(), pickled.size()}).ok());
  ExpectRefused(open("weights.pt"), "torch.save writes another format");
}

TEST_F(TorchscriptTest, NeverCrashesOnADamagedFile) {
  test::ScriptNormCnn().save(Path("whole.pt"));
  const std::string whole = *ReadFile(Path("whole.pt"));
  const auto open = [&](const std::string& content) {
    EXPECT_TRUE(WriteFile(Path("damaged.pt"), content).ok());
    return MakeTorchscriptModel({.path = Path("damaged.pt")}, kScriptInput);
  };
  for (const std::size_t part : {0, 1, 2, 5, 9})
    ExpectRefused(open(whole.substr(0, whole.size() * part / 10)), "");
  for (std::size_t place = 0; place < whole.size(); place += whole.size() / 40) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(~damaged[place]);
    const auto model = open(damaged);  // padding and some headers may have any value
    if (!model.ok()) ExpectRefused(model, "");
  }
}

}  // namespace
}  // namespace lockstep::models
