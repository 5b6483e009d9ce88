#include "runtime/models/model.h"

#include <torch/torch.h>

#include "runtime/models/cnn.h"
#include "runtime/models/gpt.h"
#include "runtime/models/mlp.h"
#include "runtime/models/plugin.h"
#include "runtime/models/resnet.h"
#include "runtime/models/torchscript.h"

namespace lockstep::models {

Result<std::shared_ptr<Model>> MakeModel(const api::ModelSpec& spec, const ModelInput& input, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  switch (spec.name) {
    case api::ModelName::kMlp: return std::shared_ptr<Model>(std::make_shared<Mlp>(spec.mlp, input));
    case api::ModelName::kCnn: return MakeCnn(spec.cnn, input);
    case api::ModelName::kResnet18: return MakeResnet(ResnetDepth::k18, spec.resnet, input);
    case api::ModelName::kResnet50: return MakeResnet(ResnetDepth::k50, spec.resnet, input);
    case api::ModelName::kGpt: return MakeGpt(spec.gpt, input);
    case api::ModelName::kPlugin: return MakePluginModel(spec.plugin.value_or(api::PluginSpec{}), input);
    case api::ModelName::kTorchscript:
      return MakeTorchscriptModel(spec.torchscript.value_or(api::TorchscriptSpec{}), input);
  }
  LOCKSTEP_CHECK(false, "unhandled model name");
}

}  // namespace lockstep::models
