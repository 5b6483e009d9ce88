#include "runtime/models/gradient_checkpointing.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "runtime/models/model.h"
#include "runtime/models/precision.h"

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSeedOfTrials = 7;

struct Trial {
  std::string name;
  api::ModelSpec model;
  ModelInput input;
};

// Dropout, running statistics, a tied parameter, and a first layer with samples or token numbers.
std::vector<Trial> Trials() {
  const ModelInput images{.sample_shape = {3, 16, 16}, .classes = 5};
  return {{"mlp", {.mlp = {{8, 8, 8}}}, images},
          {"cnn", {.name = api::ModelName::kCnn, .cnn = {.channels = {4, 8}, .dropout = 0.5}}, images},
          {"resnet", {.name = api::ModelName::kResnet18, .resnet = {.small_images = true}}, images},
          {"gpt",
           {.name = api::ModelName::kGpt,
            .gpt = {.layers = 2,
                    .heads = 2,
                    .embedding_size = 8,
                    .context_length = 6,
                    .vocabulary_size = 11,
                    .dropout = 0.5}},
           {.sample_shape = {6}, .classes = 11}}};
}

std::shared_ptr<Model> MakeTrial(const Trial& of, bool checkpointed) {
  auto model = MakeModel(of.model, of.input, kSeedOfTrials);
  LOCKSTEP_CHECK(model.ok(), model.error().ToString());
  if (!checkpointed) return *model;
  auto with = WithGradientCheckpointing(*model);
  LOCKSTEP_CHECK(with.ok(), with.error().ToString());
  return *with;
}

at::Tensor InputsOf(const Trial& of) {
  std::vector<int64_t> shape = of.input.sample_shape;
  shape.insert(shape.begin(), 4);
  return shape.size() == 2 ? torch::randint(of.input.classes, shape, at::kLong) : torch::randn(shape);
}

at::Tensor LossOf(Model& model, const at::Tensor& inputs, int64_t classes, api::Precision precision) {
  const Autocast autocast(precision, at::kCPU);
  const at::Tensor targets =
      inputs.dim() == 2 ? inputs.roll(1, 1) : at::arange(inputs.size(0), at::kLong).remainder(classes);
  return model.LossSum(model.Forward(inputs), targets);
}

// Two micro-batches whose gradients add up. The second forward pass comes before the first backward pass, as
// in a pipeline.
void TakeStep(Model& model, const Trial& of, api::Precision precision) {
  torch::manual_seed(kSeedOfTrials);
  const at::Tensor first = InputsOf(of);
  const at::Tensor second = InputsOf(of);
  const at::Tensor loss_of_first = LossOf(model, first, of.input.classes, precision);
  const at::Tensor loss_of_second = LossOf(model, second, of.input.classes, precision);
  loss_of_first.backward();
  loss_of_second.backward();
}

TEST(GradientCheckpointing, ChangesNoBitOfGradientsAndBuffers) {
  for (const Trial& of : Trials()) {
    for (const api::Precision precision : {api::Precision::kFp32, api::Precision::kBf16}) {
      SCOPED_TRACE(of.name + " " + std::string(api::NameOf(precision)));
      const auto plain = MakeTrial(of, false);
      const auto checkpointed = MakeTrial(of, true);
      TakeStep(*plain, of, precision);
      const at::Tensor drawn = torch::rand({1});
      TakeStep(*checkpointed, of, precision);
      EXPECT_TRUE(torch::rand({1}).equal(drawn)) << "the backward pass leaves the generator as it was";
      const auto found = checkpointed->named_parameters();
      for (const auto& parameter : plain->named_parameters()) {
        ASSERT_TRUE(found[parameter.key()].grad().defined()) << parameter.key();
        EXPECT_TRUE(found[parameter.key()].grad().equal(parameter.value().grad())) << parameter.key();
      }
      const auto buffers = checkpointed->named_buffers();
      for (const auto& buffer : plain->named_buffers())
        EXPECT_TRUE(buffers[buffer.key()].equal(buffer.value())) << buffer.key();
    }
  }
}

// A layer whose result depends on a buffer that it changes, unlike the norms in training.
class Counting final : public Model {
 public:
  Counting()
      : weight_(register_parameter("weight", torch::full({1}, 2.0))),
        passes_(register_buffer("passes", torch::zeros({1}))) {}
  std::vector<Layer> Layers() override {
    const auto forward = [this](const at::Tensor& inputs) {
      passes_.add_(1);
      return inputs * weight_ * passes_.clone();
    };
    return {{forward, {shared_from_this()}}};
  }

 private:
  at::Tensor weight_;
  at::Tensor passes_;
};

TEST(GradientCheckpointing, ComputesAgainWithTheBuffersOfTheFirstPass) {
  const auto counting = std::make_shared<Counting>();
  const auto model = WithGradientCheckpointing(counting);
  ASSERT_TRUE(model.ok());
  const at::Tensor first = (*model)->Forward(torch::ones({1}));
  const at::Tensor second = (*model)->Forward(torch::ones({1}));
  first.sum().backward();
  EXPECT_EQ(counting->parameters().front().grad().item<double>(), 1);
  second.sum().backward();
  EXPECT_EQ(counting->parameters().front().grad().item<double>(), 1 + 2);
  EXPECT_EQ(counting->buffers().front().item<double>(), 2);
}

// The bytes that this thread has allocated on the CPU.
class Allocations final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t size, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

int64_t PeakOf(Model& model, const at::Tensor& inputs) {
  const auto allocations = std::make_shared<Allocations>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocations);
  LossOf(model, inputs, 64, api::Precision::kFp32).backward();
  return allocations->peak();
}

TEST(GradientCheckpointing, KeepsTheActivationsOfOneLayerOnly) {
  const Trial deep{"gpt",
                   {.name = api::ModelName::kGpt,
                    .gpt = {.layers = 12,
                            .heads = 2,
                            .embedding_size = 16,
                            .context_length = 64,
                            .vocabulary_size = 64,
                            .dropout = 0.1}},
                   {.sample_shape = {64}, .classes = 64}};
  const at::Tensor inputs = torch::randint(64, {16, 64}, at::kLong);
  const int64_t plain = PeakOf(*MakeTrial(deep, false), inputs);
  const int64_t checkpointed = PeakOf(*MakeTrial(deep, true), inputs);
  EXPECT_LT(checkpointed, plain / 3) << "bytes; without: " << plain;
}

TEST(GradientCheckpointing, ComputesLayersOnceInEvaluation) {
  const auto counting = std::make_shared<Counting>();
  const auto model = WithGradientCheckpointing(counting);
  const at::NoGradGuard no_grad;
  (*model)->eval();
  EXPECT_FALSE(counting->is_training());
  const at::Tensor output = (*model)->Forward(torch::ones({1}));
  EXPECT_FALSE(output.requires_grad());
  EXPECT_EQ(counting->buffers().front().item<double>(), 1);
}

TEST(GradientCheckpointing, LeavesOutWhatIsFrozen) {
  const Trial of = Trials().back();
  const auto model = MakeTrial(of, true);
  for (auto& parameter : model->named_parameters()) {
    if (!parameter.key().starts_with("h.1.")) parameter.value().requires_grad_(false);
  }
  TakeStep(*model, of, api::Precision::kFp32);
  for (const auto& parameter : model->named_parameters())
    EXPECT_EQ(parameter.value().grad().defined(), parameter.key().starts_with("h.1.")) << parameter.key();
}

class WithoutLayers final : public Model {
 public:
  at::Tensor Forward(const at::Tensor& inputs) override { return inputs; }
};

class WithAParameterOutside final : public Model {
 public:
  WithAParameterOutside() : scale_(register_parameter("scale", torch::ones({1}))) {}
  std::vector<Layer> Layers() override {
    return {{[this](const at::Tensor& inputs) { return inputs * scale_; }, {}}};
  }

 private:
  at::Tensor scale_;
};

TEST(GradientCheckpointing, RefusesAModelThatCannotBeDivided) {
  const std::pair<std::shared_ptr<Model>, std::string> cases[] = {
      {std::make_shared<WithoutLayers>(), "does not say what its layers are"},
      {std::make_shared<WithAParameterOutside>(), "scale is in none of its layers"}};
  for (const auto& [model, reason] : cases) {
    const auto refused = WithGradientCheckpointing(model);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("spec.training.gradientCheckpointing: "));
    EXPECT_THAT(refused.error().message, HasSubstr(reason));
  }
}

}  // namespace
}  // namespace lockstep::models
