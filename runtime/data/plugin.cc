#include "runtime/data/plugin.h"

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <system_error>
#include <utility>

#include "runtime/common/base/error_exception.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/plugin/library.h"

namespace lockstep::data {
namespace {

constexpr const char* kSection = "spec.training.data.plugin";

// Whether it is the error of a mounted file system that is away, as std::filesystem throws it.
bool IsOfFiles(const std::exception& error) {
  const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
  return of_system != nullptr && MayPass(of_system->code().default_error_condition().value()) &&
         of_system->code().default_error_condition().category() == std::generic_category();
}

class PluginSet final : public Dataset {
 public:
  // Throws ErrorException if the set is unusable.
  PluginSet(std::string name, std::unique_ptr<lockstep::Dataset> set, Retries retries)
      : name_(std::move(name)),
        set_(std::move(set)),
        retries_(std::move(retries)),
        shape_(set_->sample_shape()),
        classes_(set_->classes()) {
    if (classes_ < 1) Refuse(" has " + std::to_string(classes_) + " classes");
    if (size() < 0) Refuse(" has " + std::to_string(size()) + " samples");
    if (size() > 0) LookAtFirst();
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
    const Result<Samples> samples = WithRetries<Samples>(retries_, [&] { return Ask(ids); });
    if (!samples.ok()) ThrowUnreadable(samples.error());
    return Checked(*samples, static_cast<int64_t>(ids.size()));
  }

 private:
  void LookAtFirst() const {
    const Result<Samples> first = Ask(std::vector<int64_t>{0});
    if (!first.ok()) throw ErrorException(first.error());
    (void)Checked(*first, 1);
  }

  // The cause of an exception may be temporary, so it is kInternal, and the next round tries again.
  [[nodiscard]] Result<Samples> Ask(std::span<const int64_t> ids) const {
    try {
      return set_->Get(ids);
    } catch (const std::exception& error) {
      return Error{IsOfFiles(error) ? ErrorCode::kUnavailable : ErrorCode::kInternal,
                   Named(std::string(": ") + error.what())};
    }
  }

  [[nodiscard]] Batch Checked(const Samples& samples, int64_t count) const {
    std::vector<int64_t> shape = shape_;
    shape.insert(shape.begin(), count);
    Check("inputs", samples.inputs, at::kFloat, shape);
    Check("targets", samples.targets, at::kLong, {count});
    CheckClasses(samples.targets);
    return {samples.inputs, samples.targets};
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
  const Retries retries_;
  const std::vector<int64_t> shape_;
  const int64_t classes_;
};

using MakeSet = std::function<std::unique_ptr<lockstep::Dataset>(bool is_test)>;

// kInternal: another try may succeed.
Result<Datasets> OpenOnce(const api::PluginSpec& spec, const Retries& retries, const MakeSet& make) {
  try {
    Datasets sets;
    sets.train = std::make_unique<PluginSet>(spec.name, make(/*is_test=*/false), retries);
    sets.test = std::make_unique<PluginSet>(spec.name, make(/*is_test=*/true), retries);
    return sets;
  } catch (const ErrorException& refused) {
    return refused.error();
  } catch (const std::exception& error) {
    return Error{IsOfFiles(error) ? ErrorCode::kUnavailable : ErrorCode::kInternal,
                 std::string(kSection) + ".options: " + spec.name + ": " + error.what()};
  }
}

}  // namespace

Result<Datasets> OpenPlugin(const api::PluginSpec& spec, uint64_t seed, const Retries& retries) {
  LOCKSTEP_TRY(const PluginPart* const part, plugin::Find(spec, plugin::Kind::kDataset, kSection));
  const MakeSet make = [&](bool is_test) {
    return part->make_dataset({.is_test = is_test, .seed = seed}, spec.options);
  };
  Result<Datasets> sets = OpenOnce(spec, retries, make);
  if (!sets.ok() && sets.error().code == ErrorCode::kInternal) {
    log::Warning("opening the data set failed; trying once more", {{"reason", sets.error().message}});
    retries.pause(PauseBeforeRetry(1));
    sets = OpenOnce(spec, retries, make);
  }
  if (sets.ok() || sets.error().IsTransient()) return sets;
  return Error{ErrorCode::kInvalidArgument, sets.error().message};
}

}  // namespace lockstep::data
