#include "runtime/train/replicated/placed_layers.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/models/wrapped_model.h"
#include "runtime/parallel/stage_plan.h"

namespace lockstep::train {
namespace {

struct PlacedLayer {
  Layer layer;
  at::Device device;
};

class PlacedModel final : public models::WrappedModel {
 public:
  PlacedModel(std::shared_ptr<Model> model, std::vector<PlacedLayer> layers)
      : WrappedModel(std::move(model)), layers_(std::move(layers)) {}

  [[nodiscard]] std::vector<Layer> Layers() override {
    std::vector<Layer> layers;
    layers.reserve(layers_.size());
    for (const PlacedLayer& placed : layers_) {
      const auto forward = [&placed](const at::Tensor& input) {
        const c10::DeviceGuard on_device(placed.device);
        return placed.layer.forward(input.to(placed.device));
      };
      layers.push_back({forward, placed.layer.modules});
    }
    return layers;
  }
  [[nodiscard]] at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const c10::DeviceGuard on_device(outputs.device());
    return WrappedModel::LossSum(outputs, targets.to(outputs.device()));
  }
  [[nodiscard]] double CountRight(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const c10::DeviceGuard on_device(outputs.device());
    return WrappedModel::CountRight(outputs, targets.to(outputs.device()));
  }

 private:
  const std::vector<PlacedLayer> layers_;
};

std::vector<at::Tensor> TensorsOf(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  const std::vector<at::Tensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

std::vector<at::Tensor> TensorsOf(const Layer& layer) {
  std::vector<at::Tensor> tensors;
  for (const auto& module : layer.modules) {
    const std::vector<at::Tensor> more = TensorsOf(*module);
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  return tensors;
}

// The name of a tensor that no layer has; empty: none.
std::string TensorOutside(const Model& model, const std::vector<Layer>& layers) {
  std::set<const void*> inside;
  for (const Layer& layer : layers) {
    for (const at::Tensor& tensor : TensorsOf(layer)) inside.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& tensors : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& named : tensors) {
      if (!inside.contains(named.value().unsafeGetTensorImpl())) return named.key();
    }
  }
  return {};
}

Error CannotBePlaced(const std::string& problem) {
  return {ErrorCode::kInvalidArgument,
          "spec.training.strategy: modelparallel cannot place the layers of the model, " + problem};
}

}  // namespace

std::vector<std::size_t> DevicesOfLayers(const std::vector<Layer>& layers, std::size_t devices) {
  // The set of each layer, numbered by its first layer. A layer that shares a tensor with several sets joins
  // them.
  std::vector<std::size_t> set_of(layers.size());
  std::iota(set_of.begin(), set_of.end(), std::size_t{0});
  std::map<std::size_t, int64_t> bytes;  // of each set
  std::map<const void*, std::size_t> first_user;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    bytes[layer] = 0;
    for (const at::Tensor& tensor : TensorsOf(layers[layer])) {
      const auto [user, is_new] = first_user.try_emplace(tensor.unsafeGetTensorImpl(), layer);
      if (is_new) bytes[set_of[layer]] += static_cast<int64_t>(tensor.nbytes());
      const std::size_t kept = std::min(set_of[user->second], set_of[layer]);
      const std::size_t joined = std::max(set_of[user->second], set_of[layer]);
      if (kept == joined) continue;
      std::replace(set_of.begin(), set_of.end(), joined, kept);
      bytes[kept] += bytes.extract(joined).mapped();
    }
  }
  std::vector<int64_t> costs;
  std::map<std::size_t, int> position;  // of each set among them
  for (const auto& [set, cost] : bytes) {
    position[set] = static_cast<int>(costs.size());
    costs.push_back(cost);
  }
  const auto ranges = parallel::DivideLayers(costs, static_cast<int>(std::min(devices, costs.size())));
  std::vector<std::size_t> found;
  found.reserve(layers.size());
  for (const std::size_t set : set_of) {
    const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const parallel::LayerRange& each) {
      return each.Has(position.at(set));
    });
    found.push_back(static_cast<std::size_t>(range - ranges.begin()));
  }
  return found;
}

std::map<const void*, std::size_t> DevicesOfTensors(const std::vector<Layer>& layers, std::size_t devices) {
  const std::vector<std::size_t> device_of = DevicesOfLayers(layers, devices);
  std::map<const void*, std::size_t> found;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const at::Tensor& tensor : TensorsOf(layers[layer]))
      found.emplace(tensor.unsafeGetTensorImpl(), device_of[layer]);
  }
  return found;
}

Result<std::shared_ptr<Model>> PlaceLayers(std::shared_ptr<Model> model,
                                           std::span<const at::Device> devices) {
  const std::vector<Layer> layers = model->Layers();
  if (layers.empty()) {
    return CannotBePlaced(
        "which does not say what its layers are: override lockstep::Model::Layers in a plugin, or use "
        "dataparallel or ddp");
  }
  const std::string outside = TensorOutside(*model, layers);
  if (!outside.empty()) {
    return CannotBePlaced(
        "whose " + outside +
        " is in none of them: name its module in Layer::modules, or use dataparallel or ddp");
  }
  const std::vector<std::size_t> device_of = DevicesOfLayers(layers, devices.size());
  const std::size_t used = *std::max_element(device_of.begin(), device_of.end()) + 1;
  if (used < devices.size()) {
    log::Warning("modelparallel has devices without a layer: the model has too few for all of them",
                 {{"devices", devices.size()}, {"used", used}});
  }
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    std::vector<PlacedLayer> placed;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const at::Device device = devices[device_of[i]];
      for (const auto& module : layers[i].modules) module->to(device);
      placed.push_back({layers[i], device});
    }
    return std::shared_ptr<Model>(std::make_shared<PlacedModel>(std::move(model), std::move(placed)));
  });
}

}  // namespace lockstep::train
