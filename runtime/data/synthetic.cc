#include "runtime/data/synthetic.h"

#include <torch/torch.h>

#include <utility>

namespace lockstep::data {
namespace {

constexpr double kNoise = 2.0;

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(at::Tensor inputs, at::Tensor targets, int64_t classes)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), classes_(classes) {}

  [[nodiscard]] int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] int64_t classes() const override { return classes_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return inputs_.sizes().slice(1).vec(); }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    const at::NoGradGuard guard;
    at::Tensor index = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
    std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
    return {inputs_.index_select(0, index), targets_.index_select(0, index)};
  }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  int64_t classes_;
};

}  // namespace

Datasets MakeSynthetic(const api::SyntheticSpec& spec, int64_t seed) {
  const at::NoGradGuard guard;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  std::vector<int64_t> shape = spec.shape;
  shape.insert(shape.begin(), spec.classes);
  const at::Tensor centres = at::randn(shape, generator, at::TensorOptions(at::kFloat));
  const auto make = [&](int64_t count) {
    shape.front() = count;
    const at::Tensor targets = at::randint(0, spec.classes, {count}, generator, at::TensorOptions(at::kLong));
    at::Tensor inputs = at::randn(shape, generator, at::TensorOptions(at::kFloat));
    inputs.mul_(kNoise).add_(centres.index_select(0, targets));
    return std::make_unique<SyntheticDataset>(inputs, targets, spec.classes);
  };
  Datasets sets;
  sets.train = make(spec.samples);
  sets.test = make(spec.test_samples);
  return sets;
}

}  // namespace lockstep::data
