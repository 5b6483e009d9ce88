#include "runtime/models/gradient_checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/models/precision.h"
#include "runtime/models/wrapped_model.h"

namespace lockstep::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor RandomState(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void SetRandomState(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// While the tensors of a layer are computed without gradients, autocast must not cache casts of its weights:
// a cached cast would have no gradient for an operation outside of the layer that uses the same weight.
class NoAutocastCache {
 public:
  NoAutocastCache() : was_enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(was_enabled_); }

 private:
  const bool was_enabled_;
};

struct CheckpointedLayer {
  Layer layer;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
};

// What a computation depends on in addition to its input and the parameters.
struct Surroundings {
  at::Device device;
  api::Precision precision;
  at::Tensor random_state;
  std::vector<at::Tensor> buffers;

  static Surroundings Of(const CheckpointedLayer& layer, at::Device device) {
    Surroundings now{device, PrecisionOf(device.type()), RandomState(device), {}};
    for (const at::Tensor& buffer : layer.buffers) now.buffers.push_back(buffer.detach().clone());
    return now;
  }

  void Apply(const CheckpointedLayer& layer) const {
    const at::NoGradGuard no_grad;
    SetRandomState(device, random_state);
    for (std::size_t i = 0; i < buffers.size(); ++i) layer.buffers[i].copy_(buffers[i]);
  }
};

// Restores the earlier surroundings until it goes out of scope. Autocast is left to the caller.
class BackTo {
 public:
  BackTo(const CheckpointedLayer& layer, const Surroundings& earlier)
      : layer_(layer), now_(Surroundings::Of(layer, earlier.device)) {
    earlier.Apply(layer);
  }
  BackTo(const BackTo&) = delete;
  BackTo& operator=(const BackTo&) = delete;
  ~BackTo() { now_.Apply(layer_); }

 private:
  const CheckpointedLayer& layer_;
  const Surroundings now_;
};

// What a node of the graph keeps of its forward pass, apart from the input.
struct FirstPass final : torch::CustomClassHolder {
  FirstPass(std::shared_ptr<const CheckpointedLayer> of_layer, Surroundings of_pass, variable_list of_trained)
      : layer(std::move(of_layer)), surroundings(std::move(of_pass)), trained(std::move(of_trained)) {}

  const std::shared_ptr<const CheckpointedLayer> layer;  // shared with the model, which may end first
  const Surroundings surroundings;
  const variable_list trained;  // parameters
};

constexpr const char* kFirstPass = "first pass";

struct Recomputed : torch::autograd::Function<Recomputed> {
  // `trained` are the layer's parameters that get a gradient. LibTorch calls this without gradients.
  static at::Tensor forward(AutogradContext* context, const std::shared_ptr<const CheckpointedLayer>& layer,
                            const at::Tensor& input, at::TensorList trained) {
    const NoAutocastCache no_cache;
    context->save_for_backward({input});
    context->saved_data[kFirstPass] = c10::IValue::make_capsule(
        c10::make_intrusive<FirstPass>(layer, Surroundings::Of(*layer, input.device()), trained.vec()));
    return layer->layer.forward(input);
  }

  // Returns an entry for each argument of `forward`, and for each tensor in `trained`.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto first =
        c10::static_intrusive_pointer_cast<FirstPass>(context->saved_data[kFirstPass].toCapsule());
    const at::Tensor saved = context->get_saved_variables().front();
    variable_list found(2 + first->trained.size());
    const at::AutoGradMode with_gradients(true);
    const at::Tensor input = saved.detach();
    variable_list wanted = first->trained;
    if (saved.requires_grad()) wanted.push_back(input.requires_grad_(true));
    const BackTo surroundings(*first->layer, first->surroundings);
    const at::Tensor output = [&] {
      const Autocast precision(first->surroundings.precision, first->surroundings.device.type());
      return first->layer->layer.forward(input);
    }();
    if (!output.requires_grad()) return found;
    variable_list of_wanted =
        torch::autograd::grad({output}, wanted, gradients, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    if (saved.requires_grad()) {
      found[1] = std::move(of_wanted.back());
      of_wanted.pop_back();
    }
    std::move(of_wanted.begin(), of_wanted.end(), found.begin() + 2);
    return found;
  }
};

at::Tensor Forward(const std::shared_ptr<const CheckpointedLayer>& layer, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return layer->layer.forward(input);
  variable_list trained;
  for (const at::Tensor& parameter : layer->parameters) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return Recomputed::apply(layer, input, at::TensorList(trained));
}

std::shared_ptr<const CheckpointedLayer> Checkpointed(Layer layer) {
  CheckpointedLayer made{.layer = std::move(layer), .parameters = {}, .buffers = {}};
  std::set<const void*> seen;  // a module may be named twice, or in another
  const auto add = [&](const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& to) {
    for (const at::Tensor& tensor : tensors) {
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) to.push_back(tensor);
    }
  };
  for (const auto& module : made.layer.modules) {
    add(module->parameters(), made.parameters);
    add(module->buffers(), made.buffers);
  }
  return std::make_shared<const CheckpointedLayer>(std::move(made));
}

class CheckpointedModel final : public WrappedModel {
 public:
  explicit CheckpointedModel(const std::shared_ptr<Model>& model) : WrappedModel(model) {
    for (Layer& layer : model->Layers()) layers_.push_back(Checkpointed(std::move(layer)));
  }

  [[nodiscard]] std::vector<Layer> Layers() override {
    std::vector<Layer> layers;
    layers.reserve(layers_.size());
    for (const auto& layer : layers_) {
      layers.push_back(
          {[layer](const at::Tensor& input) { return models::Forward(layer, input); }, layer->layer.modules});
    }
    return layers;
  }

  [[nodiscard]] bool has_layers() const { return !layers_.empty(); }
  // The name of a trained parameter that no layer has; empty: none.
  [[nodiscard]] std::string ParameterOutside() const {
    std::set<const void*> inside;
    for (const auto& layer : layers_) {
      for (const at::Tensor& parameter : layer->parameters) inside.insert(parameter.unsafeGetTensorImpl());
    }
    for (const auto& parameter : named_parameters()) {
      if (parameter.value().requires_grad() && !inside.contains(parameter.value().unsafeGetTensorImpl()))
        return parameter.key();
    }
    return {};
  }

 private:
  std::vector<std::shared_ptr<const CheckpointedLayer>> layers_;
};

Error CannotBeCheckpointed(const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.gradientCheckpointing: " + problem};
}

}  // namespace

Result<std::shared_ptr<Model>> WithGradientCheckpointing(std::shared_ptr<Model> model) {
  const auto made = std::make_shared<CheckpointedModel>(model);
  if (!made->has_layers()) {
    return CannotBeCheckpointed(
        "the model does not say what its layers are, so none of them can be computed again; override "
        "lockstep::Model::Layers in the plugin, or set it to false");
  }
  const std::string outside = made->ParameterOutside();
  if (!outside.empty()) {
    return CannotBeCheckpointed(
        "the model's " + outside +
        " is in none of its layers, so it would get no gradient; name its module in Layer::modules, or set "
        "it to false");
  }
  return std::shared_ptr<Model>(made);
}

}  // namespace lockstep::models
