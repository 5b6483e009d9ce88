#include "runtime/data/synthetic.h"

#include <torch/torch.h>

#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

constexpr double kNoise = 2.0;

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
    return MakeTensorDataset(inputs, targets, spec.classes);
  };
  Datasets sets;
  sets.train = make(spec.samples);
  sets.test = make(spec.test_samples);
  return sets;
}

}  // namespace lockstep::data
