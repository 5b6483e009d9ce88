#include "runtime/train/loop/warm_up.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/script_modules.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

TEST(WarmUp, LeavesNoTrace) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  const auto datasets = data::OpenDatasets(spec);
  auto state = MakeTrainingState(spec, {spec.data.synthetic.shape, 3});
  ASSERT_TRUE(datasets.ok() && state.ok());
  const int64_t before = testing::ReplicatedOf(**state).Digest();
  EXPECT_TRUE(WarmUp(spec, *datasets->train, **state).ok());
  EXPECT_EQ(testing::ReplicatedOf(**state).Digest(), before);
  for (const at::Tensor& parameter : testing::ReplicatedOf(**state).trained())
    EXPECT_FALSE(parameter.grad().defined());
}

TEST(WarmUp, LetsAParameterBeThatHasNoPartInTheLoss) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  const std::string path = ::testing::TempDir() + "unused-" + std::to_string(::getpid()) + ".pt";
  test::ScriptModule("return torch.linear(x.flatten(1), self.weight)",
                     {{"weight", torch::randn({3, 64})}, {"idle", torch::randn({2})}})
      .save(path);
  spec.model.name = api::ModelName::kTorchscript;
  spec.model.torchscript.emplace().path = path;
  const auto datasets = data::OpenDatasets(spec);
  auto state = MakeTrainingState(spec, {spec.data.synthetic.shape, 3});
  std::filesystem::remove(path);
  ASSERT_TRUE(datasets.ok() && state.ok());
  EXPECT_TRUE(WarmUp(spec, *datasets->train, **state).ok()) << "another branch may use it";
}

}  // namespace
}  // namespace lockstep::train
