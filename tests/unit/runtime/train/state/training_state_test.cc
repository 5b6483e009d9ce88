#include "runtime/train/make_training_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/script_modules.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

TEST(MakeTrainingState, LaysOutInOrderWhatAFileHasChannelsLast) {
  const at::Tensor weight = torch::randn({4, 3, 3, 3});
  const std::string path = ::testing::TempDir() + "channels-last-" + std::to_string(::getpid()) + ".pt";
  test::ScriptModule("return torch.conv2d(x, self.weight).mean([2, 3])",
                     {{"weight", weight.contiguous(at::MemoryFormat::ChannelsLast)}})
      .save(path);
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.name = api::ModelName::kTorchscript;
  spec.model.torchscript.emplace().path = path;
  const auto state = MakeTrainingState(spec, {{3, 8, 8}, 4});
  std::filesystem::remove(path);
  ASSERT_TRUE(state.ok()) << state.error().message;
  ASSERT_FALSE(weight.contiguous(at::MemoryFormat::ChannelsLast).is_contiguous());
  for (const NamedTensor& parameter : (*state)->parameters) {
    EXPECT_TRUE(parameter.tensor.is_contiguous()) << parameter.name;
    if (parameter.name == "weight") {
      EXPECT_TRUE(parameter.tensor.equal(weight));
    }
  }
  EXPECT_EQ((*state)->model->Forward(torch::ones({1, 3, 8, 8})).size(1), 4) << "the module has it, too";
}

}  // namespace
}  // namespace lockstep::train
