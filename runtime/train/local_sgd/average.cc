#include "runtime/train/local_sgd/average.h"

#include <ATen/ATen.h>

#include <map>
#include <vector>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// Bounds how long one message delays an abort, and the additional memory.
constexpr int64_t kPieceElements = int64_t{4} << 20;

// Half precision would round away small differences between the ranks.
at::ScalarType SentAs(const at::Tensor& tensor) {
  if (!at::isFloatingType(tensor.scalar_type())) return at::kLong;
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor WeightedTensor(const ToAverage& entry, double weight, bool is_first) {
  const at::ScalarType type = SentAs(entry.tensor);
  const at::Tensor value = entry.tensor.to(type);
  if (type == at::kLong) return (value * (is_first ? 1 : 0)).reshape(-1);
  const at::Tensor change = entry.origin.defined() ? value - entry.origin.to(type) : value;
  return (change * weight).reshape(-1);
}

void Take(const ToAverage& entry, const at::Tensor& sum) {
  const at::Tensor value = sum.view(entry.tensor.sizes());
  const bool is_change = entry.origin.defined() && SentAs(entry.tensor) != at::kLong;
  const at::Tensor mean = is_change ? value + entry.origin.to(value.scalar_type()) : value;
  entry.tensor.copy_(mean);
}

Result<void> AveragePiece(comm::Communicator& communicator, std::span<const ToAverage> piece, double weight) {
  LOCKSTEP_TRY(at::Tensor flat, CatchTorch(ErrorCode::kInternal, "packing an average", [&] {
                 std::vector<at::Tensor> parts;
                 for (const ToAverage& entry : piece)
                   parts.push_back(WeightedTensor(entry, weight, communicator.rank() == 0));
                 return at::cat(parts);
               }));
  LOCKSTEP_TRY(communicator.SumInPlace(flat));
  return CatchTorch(ErrorCode::kInternal, "unpacking an average", [&] {
    int64_t begin = 0;
    for (const ToAverage& entry : piece) {
      Take(entry, flat.narrow(0, begin, entry.tensor.numel()));
      begin += entry.tensor.numel();
    }
  });
}

}  // namespace

Result<void> AverageInPlace(comm::Communicator& communicator, std::span<const ToAverage> tensors,
                            double weight) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<ToAverage>> of_type;
  for (const ToAverage& entry : tensors) of_type[SentAs(entry.tensor)].push_back(entry);
  for (const auto& [type, entries] : of_type) {
    std::size_t begin = 0;
    int64_t elements = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      elements += entries[i].tensor.numel();
      if (elements < kPieceElements && i + 1 < entries.size()) continue;
      const std::span<const ToAverage> piece(entries.begin() + static_cast<std::ptrdiff_t>(begin),
                                             i + 1 - begin);
      LOCKSTEP_TRY(AveragePiece(communicator, piece, weight));
      begin = i + 1;
      elements = 0;
    }
  }
  return {};
}

}  // namespace lockstep::train
