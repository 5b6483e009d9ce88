#include "runtime/data/plugin.h"

#include <ATen/ATen.h>

#include <exception>
#include <utility>

#include "runtime/common/base/error_exception.h"
#include "runtime/plugin/library.h"

namespace lockstep::data {
namespace {

constexpr const char* kSection = "spec.training.data.plugin";

class PluginSet final : public Dataset {
 public:
  // Throws ErrorException where the set cannot be used.
  PluginSet(std::string name, std::unique_ptr<lockstep::Dataset> set)
      : name_(std::move(name)),
        set_(std::move(set)),
        shape_(set_->sample_shape()),
        classes_(set_->classes()) {
    if (classes_ < 1) Refuse(" has " + std::to_string(classes_) + " classes");
    if (size() < 0) Refuse(" has " + std::to_string(size()) + " samples");
    if (size() > 0) (void)Get(std::vector<int64_t>{0});
    const at::Tensor of_samples = labels();
    if (!of_samples.defined()) return;
    if (of_samples.scalar_type() != at::kLong || of_samples.dim() != 1 || of_samples.numel() != size())
      Refuse(" has labels " + Text(of_samples) + ", not int64 [" + std::to_string(size()) + "]");
    CheckClasses(of_samples);
  }

  int64_t size() const override { return set_->size(); }
  int64_t classes() const override { return classes_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  at::Tensor labels() const override { return set_->labels(); }

  Batch Get(std::span<const int64_t> ids) const override {
    const Samples samples = Ask(ids);
    const auto count = static_cast<int64_t>(ids.size());
    std::vector<int64_t> shape = shape_;
    shape.insert(shape.begin(), count);
    Check("inputs", samples.inputs, at::kFloat, shape);
    Check("targets", samples.targets, at::kLong, {count});
    CheckClasses(samples.targets);
    return {samples.inputs, samples.targets};
  }

 private:
  [[nodiscard]] Samples Ask(std::span<const int64_t> ids) const {
    try {
      return set_->Get(ids);
    } catch (const std::exception& error) {
      // It may have read what was not there for a moment: the next round asks again.
      throw ErrorException({ErrorCode::kInternal, Named(std::string(": ") + error.what())});
    }
  }

  [[noreturn]] void Refuse(const std::string& problem) const {
    throw ErrorException({ErrorCode::kDataLoss, Named(problem)});
  }
  [[nodiscard]] std::string Named(const std::string& problem) const {
    return std::string(kSection) + ": " + name_ + problem;
  }

  static std::string Text(const at::Tensor& tensor) {
    if (!tensor.defined()) return "nothing";
    std::string text = std::string(at::toString(tensor.scalar_type())) + " [";
    for (const int64_t extent : tensor.sizes())
      text += (text.ends_with('[') ? "" : ", ") + std::to_string(extent);
    return text + "] on " + tensor.device().str();
  }

  void Check(const char* what, const at::Tensor& tensor, at::ScalarType type,
             const std::vector<int64_t>& shape) const {
    const bool fits = tensor.defined() && tensor.scalar_type() == type && tensor.is_cpu() &&
                      tensor.sizes() == at::IntArrayRef(shape);
    if (fits) return;
    Refuse(" gave " + std::string(what) + " " + Text(tensor) + ", not " +
           Text(at::empty(shape, at::TensorOptions(type))));
  }

  void CheckClasses(const at::Tensor& classes) const {
    if (classes.numel() == 0) return;
    const auto [least, most] = at::aminmax(classes);
    for (const auto found : {least.item<int64_t>(), most.item<int64_t>()}) {
      if (found < 0 || found >= classes_)
        Refuse(" gave the class " + std::to_string(found) + ", and has " + std::to_string(classes_));
    }
  }

  const std::string name_;
  const std::unique_ptr<lockstep::Dataset> set_;
  const std::vector<int64_t> shape_;
  const int64_t classes_;
};

}  // namespace

Result<Datasets> OpenPlugin(const api::PluginSpec& spec, uint64_t seed) {
  LOCKSTEP_TRY(const PluginPart* const part, plugin::Find(spec, plugin::Kind::kDataset, kSection));
  const auto make = [&](bool is_test) {
    std::unique_ptr<lockstep::Dataset> set =
        part->make_dataset({.is_test = is_test, .seed = seed}, spec.options);
    return std::make_unique<PluginSet>(spec.name, std::move(set));
  };
  try {
    Datasets sets;
    sets.train = make(/*is_test=*/false);
    sets.test = make(/*is_test=*/true);
    return sets;
  } catch (const ErrorException& refused) {
    return Error{ErrorCode::kInvalidArgument, refused.error().message};
  } catch (const std::exception& error) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string(kSection) + ".options: " + spec.name + ": " + error.what()};
  }
}

}  // namespace lockstep::data
