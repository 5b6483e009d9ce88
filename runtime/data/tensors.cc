#include "runtime/data/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace lockstep::data {
namespace {

class TensorDataset final : public Dataset {
 public:
  TensorDataset(at::Tensor inputs, at::Tensor targets, int64_t classes)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), classes_(classes) {}

  [[nodiscard]] int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] int64_t classes() const override { return classes_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return inputs_.sizes().slice(1).vec(); }
  [[nodiscard]] at::Tensor labels() const override { return targets_; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    const at::NoGradGuard guard;
    const at::Tensor index = IndexOf(ids);
    return {inputs_.index_select(0, index), targets_.index_select(0, index)};
  }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  int64_t classes_;
};

}  // namespace

std::unique_ptr<Dataset> MakeTensorDataset(at::Tensor inputs, at::Tensor targets, int64_t classes) {
  return std::make_unique<TensorDataset>(std::move(inputs), std::move(targets), classes);
}

at::Tensor IndexOf(std::span<const int64_t> ids) {
  at::Tensor index = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
  return index;
}

}  // namespace lockstep::data
