#include "runtime/parallel/shared_sum.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/comm/torch_error.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

// The n-th holder of a tensor sums the n-th part of its elements for all holders.
class Parts {
 public:
  Parts(const std::vector<SharedTensor>& tensors, int rank, int world) : rank_(rank), world_(world) {
    for (const SharedTensor& shared : tensors) {
      if (shared.holders.size() < 2) continue;
      any_ = true;
      if (shared.tensor.defined()) mine_.push_back(&shared);
    }
  }

  [[nodiscard]] bool any() const { return any_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] int rank() const { return rank_; }

  // Of the tensors that both this rank and `other` hold, the part of `owner`, which is one of the two.
  [[nodiscard]] std::vector<at::Tensor> Of(int owner, int other) const {
    std::vector<at::Tensor> parts;
    for (const SharedTensor* shared : mine_) {
      if (other != rank_ && IsHolder(*shared, other)) parts.push_back(PartOf(*shared, owner));
    }
    return parts;
  }

 private:
  static bool IsHolder(const SharedTensor& shared, int rank) {
    return std::binary_search(shared.holders.begin(), shared.holders.end(), rank);
  }
  static at::Tensor PartOf(const SharedTensor& shared, int owner) {
    const auto place =
        std::lower_bound(shared.holders.begin(), shared.holders.end(), owner) - shared.holders.begin();
    const auto parts = static_cast<int64_t>(shared.holders.size());
    const int64_t begin = shared.elements * place / parts;
    return shared.tensor.view(-1).narrow(0, begin, shared.elements * (place + 1) / parts - begin);
  }

  const int rank_;
  const int world_;
  bool any_ = false;
  std::vector<const SharedTensor*> mine_;
};

int64_t SizeOf(const std::vector<at::Tensor>& parts) {
  int64_t size = 0;
  for (const at::Tensor& part : parts) size += part.numel();
  return size;
}

// Sends each other rank the parts that `sent` returns; `take` gets each received part with its destination.
template <typename Sent, typename Received, typename Take>
Result<void> Exchange(comm::Communicator& communicator, const at::TensorOptions& options, const Parts& parts,
                      Sent&& sent, Received&& received, Take&& take) {
  at::Tensor outgoing;
  at::Tensor incoming;
  std::vector<int64_t> sent_rows;
  std::vector<int64_t> rows;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing gradients", [&] {
    std::vector<at::Tensor> pieces = {at::empty({0}, options)};
    for (int rank = 0; rank < parts.world(); ++rank) {
      const std::vector<at::Tensor> to = sent(rank);
      pieces.insert(pieces.end(), to.begin(), to.end());
      sent_rows.push_back(SizeOf(to));
      rows.push_back(SizeOf(received(rank)));
    }
    outgoing = at::cat(pieces);
    int64_t size = 0;
    for (const int64_t row : rows) size += row;
    incoming = at::empty({size}, options);
  }));
  LOCKSTEP_TRY(communicator.AllToAll(incoming, rows, outgoing, sent_rows));
  return CatchTorch(ErrorCode::kInternal, "unpacking gradients", [&] {
    int64_t begin = 0;
    for (int rank = 0; rank < parts.world(); ++rank) {
      for (const at::Tensor& part : received(rank)) {
        take(part, incoming.narrow(0, begin, part.numel()));
        begin += part.numel();
      }
    }
  });
}

}  // namespace

Result<void> SumOverHolders(comm::Communicator& communicator, const std::vector<SharedTensor>& tensors,
                            const at::TensorOptions& options) {
  const at::NoGradGuard no_grad;
  const int me = communicator.rank();
  const Parts parts(tensors, me, communicator.world());
  if (!parts.any()) return {};
  const auto mine_with = [&](int other) { return parts.Of(me, other); };
  const auto theirs_of = [&](int other) { return parts.Of(other, other); };
  LOCKSTEP_TRY(Exchange(communicator, options, parts, theirs_of, mine_with,
                        [](const at::Tensor& part, const at::Tensor& came) { part.add_(came); }));
  return Exchange(communicator, options, parts, mine_with, theirs_of,
                  [](const at::Tensor& part, const at::Tensor& came) { part.copy_(came); });
}

}  // namespace lockstep::parallel
