#include "runtime/data/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace lockstep::data {
namespace {

class TensorDataset final : public Dataset {
 public:
  TensorDataset(at::Tensor inputs, at::Tensor targets, int64_t classes, std::vector<int64_t> corrupt)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        classes_(classes),
        corrupt_(std::move(corrupt)) {}

  [[nodiscard]] int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] int64_t classes() const override { return classes_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return inputs_.sizes().slice(1).vec(); }
  [[nodiscard]] at::Tensor labels() const override {
    return corrupt_.empty() ? targets_ : targets_.index_fill(0, IndexOf(corrupt_), -1);
  }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    const at::NoGradGuard guard;
    const at::Tensor index = IndexOf(ids);
    Batch batch{inputs_.index_select(0, index), targets_.index_select(0, index)};
    if (corrupt_.empty()) return batch;
    for (std::size_t row = 0; row < ids.size(); ++row) {
      if (std::binary_search(corrupt_.begin(), corrupt_.end(), ids[row]))
        batch.corrupt.push_back(static_cast<int64_t>(row));
    }
    return batch;
  }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  int64_t classes_;
  std::vector<int64_t> corrupt_;
};

}  // namespace

Batch Batch::WithoutCorrupt() const {
  if (corrupt.empty()) return *this;
  const at::NoGradGuard guard;
  std::vector<int64_t> good;
  for (int64_t row = 0; row < inputs.size(0); ++row) {
    if (!std::binary_search(corrupt.begin(), corrupt.end(), row)) good.push_back(row);
  }
  const at::Tensor index = IndexOf(good);
  return {.inputs = inputs.index_select(0, index),
          .targets = targets.index_select(0, index),
          .left_out = left_out + static_cast<int64_t>(corrupt.size())};
}

std::unique_ptr<Dataset> MakeTensorDataset(at::Tensor inputs, at::Tensor targets, int64_t classes,
                                           std::vector<int64_t> corrupt) {
  return std::make_unique<TensorDataset>(std::move(inputs), std::move(targets), classes, std::move(corrupt));
}

at::Tensor IndexOf(std::span<const int64_t> ids) {
  at::Tensor index = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
  return index;
}

}  // namespace lockstep::data
