#include "runtime/train/pipeline/staged_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/runtime/train/pipeline/as_one_process.h"

namespace lockstep::train {
namespace {

// Each parameter and each running statistic has its layer.
TEST(StagedState, DividesOurModels) {
  for (const api::ModelName name : {api::ModelName::kMlp, api::ModelName::kCnn, api::ModelName::kResnet18,
                                    api::ModelName::kResnet50, api::ModelName::kGpt}) {
    api::TrainingSpec spec = Training(api::Strategy::kPipeline);
    spec.model.name = name;
    spec.model.gpt = {
        .layers = 2, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 32};
    const bool is_gpt = name == api::ModelName::kGpt;
    const ModelInput input{is_gpt ? std::vector<int64_t>{8} : std::vector<int64_t>{3, 32, 32}, 10};
    const auto state = MakeTrainingState(spec, input);
    ASSERT_TRUE(state.ok()) << state.error().ToString();
    EXPECT_EQ((*state)->Tensors().size(),
              MakeTrainingState({.model = spec.model, .optimizer = spec.optimizer}, input)
                  .value()
                  ->Tensors()
                  .size());
  }
}

TEST(StagedState, RefusesAModelWithoutLayers) {
  class Whole final : public Model {
   public:
    Whole() { register_parameter("weight", at::ones({1})); }
    at::Tensor Forward(const at::Tensor& inputs) override { return inputs; }
  };
  const auto made =
      StagedState::Make(Training(api::Strategy::kPipeline), {}, std::make_shared<Whole>(), at::kCPU);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(made.error().message.find("spec.training.strategy: pipeline"), std::string::npos);
  EXPECT_NE(made.error().message.find("override lockstep::Model::Layers"), std::string::npos);
}

TEST(StagedState, RefusesAParameterThatIsInNoLayer) {
  class Forgetful final : public Model {
   public:
    Forgetful() { register_parameter("forgotten", at::ones({1})); }
    std::vector<Layer> Layers() override {
      return {{[](const at::Tensor& x) { return x; }, {}}};
    }
  };
  const auto made =
      StagedState::Make(Training(api::Strategy::kPipeline), {}, std::make_shared<Forgetful>(), at::kCPU);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("forgotten"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
