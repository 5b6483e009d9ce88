#include "runtime/models/torchscript.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

namespace lockstep::models {
namespace {

namespace jit = torch::jit;

// One line. For exceptions of the interpreter, the last line of the script's own message.
std::string ReasonOf(const std::exception& exception) {
  const auto* error = dynamic_cast<const c10::Error*>(&exception);
  std::string text = error == nullptr ? exception.what() : error->what_without_backtrace();
  constexpr std::string_view kRaised = "Error: ";  // "RuntimeError: …", as in Python
  const std::size_t raised =
      text.find("Traceback of TorchScript") == std::string::npos ? std::string::npos : text.rfind(kRaised);
  if (raised != std::string::npos) text.erase(0, raised + kRaised.size());
  text.erase(0, text.find_first_not_of(" \n"));
  text.resize(std::min(text.find('\n'), text.size()));
  // In errors about damaged archives, the rest is for PyTorch's developers.
  return text.substr(0, text.find(". This is an internal miniz error"));
}

std::string TextOf(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

// Runs the module without graph optimisation: the executor's optimised graph after the first runs may round
// differently and draw other random numbers, but a step must give the same result in a new process.
using AsWritten = jit::GraphOptimizerEnabledGuard;

class Torchscript final : public Model {
 public:
  Torchscript(jit::Module module, api::TorchscriptLoss loss) : module_(std::move(module)), loss_(loss) {
    Adopt(*this, module_);
  }

  void train(bool on) override {
    Model::train(on);
    module_.train(on);
  }

  [[nodiscard]] at::Tensor Forward(const at::Tensor& inputs) override {
    const AsWritten as_written(false);
    return module_.forward({inputs}).toTensor();
  }

  [[nodiscard]] at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const override {
    if (loss_ == api::TorchscriptLoss::kCrossEntropy) return Model::LossSum(outputs, targets);
    return at::mse_loss(outputs.flatten().to(at::kFloat), targets.to(at::kFloat), at::Reduction::Sum);
  }

  [[nodiscard]] double CountRight(const at::Tensor& outputs, const at::Tensor& targets) const override {
    if (loss_ == api::TorchscriptLoss::kCrossEntropy) return Model::CountRight(outputs, targets);
    return outputs.flatten().round().eq(targets).sum().item<double>();
  }

 private:
  // Mirrors each submodule of the script as a LibTorch child, so tensors have their Python names. A tensor
  // with two names counts once, as in named_parameters().
  void Adopt(torch::nn::Module& into, const jit::Module& from) {
    if (!adopted_.insert(from._ivalue().get()).second) return;
    for (const auto& parameter : from.named_parameters(/*recurse=*/false)) {
      if (adopted_.insert(parameter.value.unsafeGetTensorImpl()).second)
        into.register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
    }
    for (const auto& buffer : from.named_buffers(/*recurse=*/false)) {
      if (adopted_.insert(buffer.value.unsafeGetTensorImpl()).second)
        into.register_buffer(buffer.name, buffer.value);
    }
    for (const auto& child : from.named_children())
      Adopt(*into.register_module(child.name, std::make_shared<torch::nn::Module>()), child.value);
  }

  jit::Module module_;
  const api::TorchscriptLoss loss_;
  std::set<const void*> adopted_;
};

// If a traced module has its norms or dropout fixed to a mode, their operator is called with a constant.
std::optional<std::string> FindFixedMode(jit::Block& block, std::set<const jit::Function*>& seen) {
  for (jit::Node* node : block.nodes()) {
    const jit::GraphFunction* called = jit::tryToGraphFunction(node);
    std::optional<std::string> found;
    if (called != nullptr && seen.insert(called).second)
      found = FindFixedMode(*called->graph()->block(), seen);
    for (jit::Block* inner : node->blocks()) {
      if (!found) found = FindFixedMode(*inner, seen);
    }
    if (found) return found;
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema == nullptr) continue;
    const std::string_view name = schema->name();
    if (!name.ends_with("batch_norm") && !name.ends_with("dropout")) continue;
    for (const char* flag : {"training", "train"}) {
      const auto place = schema->argumentIndexWithName(flag);
      if (place && node->input(static_cast<std::size_t>(*place))->node()->kind() == c10::prim::Constant)
        return std::string(name.substr(name.find("::") + 2));
    }
  }
  return std::nullopt;
}

// The checks of one file.
class File {
 public:
  File(const api::TorchscriptSpec& spec, const ModelInput& input) : spec_(spec), input_(input) {}

  Result<std::shared_ptr<Model>> Open() const {
    LOCKSTEP_TRY(const jit::Module module, Load());
    LOCKSTEP_TRY(CheckForward(module));
    std::shared_ptr<Model> model = std::make_shared<Torchscript>(module, spec_.loss);
    LOCKSTEP_TRY(CheckParameters(*model));
    const at::NoGradGuard no_grad;
    model->eval();
    // A batch size other than the example's detects a module that was traced with a fixed one.
    for (const int64_t samples : {2, 3}) LOCKSTEP_TRY(Try(*model, samples));
    model->train();
    return model;
  }

  [[nodiscard]] Error Bad(const std::string& problem, const std::string& right) const {
    return {ErrorCode::kInvalidArgument,
            "spec.training.model.torchscript.path: " + spec_.path + " " + problem + "; " + right};
  }

 private:
  Result<jit::Module> Load() const {
    std::error_code error;
    if (!std::filesystem::is_regular_file(spec_.path, error))
      return Bad("is not a readable file", "name one that torch.jit.script(model).save(path) wrote");
    try {
      return jit::load(spec_.path, at::Device(at::kCPU));
    } catch (const std::exception& exception) {
      return Bad("is not a loadable TorchScript file (" + ReasonOf(exception) + ")",
                 "write it with torch.jit.script(model).save(path); torch.save writes another format");
    }
  }

  Result<void> CheckForward(const jit::Module& module) const {
    const auto forward = module.find_method("forward");
    if (!forward) return Bad("has no forward", "script a torch.nn.Module with def forward(self, x)");
    const c10::FunctionSchema& schema = forward->function().getSchema();
    const auto& arguments = schema.arguments();
    bool fits = arguments.size() >= 2 && !arguments[1].kwarg_only() &&
                c10::TensorType::get()->isSubtypeOf(*arguments[1].type()) && schema.returns().size() == 1 &&
                schema.returns()[0].type()->isSubtypeOf(*c10::TensorType::get());
    for (std::size_t i = 2; i < arguments.size(); ++i) fits &= arguments[i].default_value().has_value();
    if (!fits) {
      std::ostringstream text;
      text << schema;
      return Bad("has " + text.str(), "forward must take one tensor, the batch, and give one");
    }
    std::set<const jit::Function*> seen;
    if (const auto fixed = FindFixedMode(*forward->graph()->block(), seen)) {
      return Bad("was traced: its " + *fixed + " cannot change between training and evaluation",
                 "use torch.jit.script(model) instead of torch.jit.trace");
    }
    return {};
  }

  Result<void> CheckParameters(const Model& model) const {
    bool any = false;
    for (const auto& parameter : model.named_parameters()) {
      if (!parameter.value().requires_grad()) continue;
      any = true;
      if (parameter.value().scalar_type() != at::kFloat) {
        return Bad("has " + parameter.key() + " of " + at::toString(parameter.value().scalar_type()),
                   "save model.float(): spec.training.precision says what is computed with");
      }
    }
    if (any) return {};
    return Bad("has no parameter to train",
               "save the module itself, with requires_grad, not what torch.jit.freeze makes of it");
  }

  Result<void> Try(Model& model, int64_t samples) const {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), input_.sample_shape.begin(), input_.sample_shape.end());
    const std::string given = "a batch of float32 " + TextOf(shape);
    at::Tensor outputs;
    try {
      outputs = model.Forward(at::zeros(shape));
    } catch (const std::exception& exception) {
      return Bad("does not take " + given + ": " + ReasonOf(exception),
                 "a module must take the samples of spec.training.data in batches of any size; a traced one "
                 "may have its example's shape fixed: use torch.jit.script(model)");
    }
    const bool is_class = spec_.loss == api::TorchscriptLoss::kCrossEntropy;
    const bool is_list = outputs.dim() == 1 || (outputs.dim() == 2 && outputs.size(1) == 1);
    const bool fits = is_class ? outputs.dim() == 2 && outputs.size(1) >= input_.classes : is_list;
    if (fits && outputs.size(0) == samples && outputs.is_floating_point()) return {};
    const std::string wanted = is_class ? "crossEntropy needs [n, classes] with the " +
                                              std::to_string(input_.classes) +
                                              " classes of spec.training.data, or more"
                                        : "meanSquaredError needs one value for each sample, [n] or [n, 1]";
    return Bad("gives " + std::string(at::toString(outputs.scalar_type())) + " " + TextOf(outputs.sizes()) +
                   " for " + given,
               wanted);
  }

  const api::TorchscriptSpec& spec_;
  const ModelInput& input_;
};

}  // namespace

Result<std::shared_ptr<Model>> MakeTorchscriptModel(const api::TorchscriptSpec& spec,
                                                    const ModelInput& input) {
  const File file(spec, input);
  try {
    return file.Open();
  } catch (const std::exception& exception) {  // a name that LibTorch refuses, no memory
    return file.Bad("cannot be used (" + ReasonOf(exception) + ")", "save it again");
  }
}

}  // namespace lockstep::models
