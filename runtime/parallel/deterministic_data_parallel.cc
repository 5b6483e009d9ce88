#include "runtime/parallel/deterministic_data_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/clock.h"
#include "runtime/parallel/tree_sum.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

// One gradient of all parameters. The buffer is padded if the ranks' equal parts need it.
struct Gradient {
  at::Tensor flat;
  std::vector<at::Tensor> views;  // in the parameters' shapes
};

// Buffers that are reused in every step: a new one for each micro-batch would cost page faults.
class GradientPool {
 public:
  GradientPool(const std::vector<at::Tensor>& parameters, int64_t multiple_of) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_) size_ += parameter.numel();
    size_ = (size_ + multiple_of - 1) / multiple_of * multiple_of;
  }

  // Returns a zeroed buffer.
  Gradient Take() {
    Gradient gradient;
    if (free_.empty()) {
      gradient = Make();
    } else {
      gradient = std::move(free_.back());
      free_.pop_back();
    }
    gradient.flat.zero_();
    return gradient;
  }
  void Return(Gradient gradient) { free_.push_back(std::move(gradient)); }

 private:
  Gradient Make() const {
    Gradient gradient{.flat = at::empty({size_}, parameters_.front().options().requires_grad(false))};
    int64_t begin = 0;
    for (const at::Tensor& parameter : parameters_) {
      gradient.views.push_back(gradient.flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
      begin += parameter.numel();
    }
    return gradient;
  }

  const std::vector<at::Tensor>& parameters_;
  int64_t size_ = 0;
  std::vector<Gradient> free_;
};

class DeterministicDataParallel final : public Strategy {
 public:
  DeterministicDataParallel(std::shared_ptr<comm::Communicator> communicator,
                            std::vector<at::Tensor> parameters)
      : communicator_(std::move(communicator)),
        parameters_(std::move(parameters)),
        pool_(parameters_, communicator_->world()) {
    total_ = pool_.Take();
  }

  ~DeterministicDataParallel() override {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

  Result<void> BeginStep(std::span<const int64_t> micro_batches) override {
    micro_batches_.assign(micro_batches.begin(), micro_batches.end());
    const auto mine = micro_batches_.begin() + communicator_->rank();
    next_leaf_ = std::accumulate(micro_batches_.begin(), mine, int64_t{0});
    leaves_ = std::accumulate(mine, micro_batches_.end(), next_leaf_);
    // An interrupted step leaves some behind.
    for (Gradient& sum : sums_) pool_.Return(std::move(sum));
    sums_.clear();
    open_ = TreeStack(leaves_);
    return {};
  }

  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "backward pass", [&] { AddLeaf(loss_sum); }));
    return last ? SumOverRanks() : Result<void>{};
  }

  Result<void> BackwardOfNothing() override { return SumOverRanks(); }

  double exposed_seconds() const override { return exposed_seconds_; }

 private:
  void AddLeaf(const at::Tensor& loss_sum) {
    Gradient leaf = pool_.Take();
    PointGradientsInto(leaf);
    loss_sum.backward();
    sums_.push_back(std::move(leaf));
    const at::NoGradGuard no_grad;
    for (int additions = open_.Push({0, next_leaf_++}); additions > 0; --additions) {
      Gradient right = std::move(sums_.back());
      sums_.pop_back();
      sums_.back().flat.add_(right.flat);
      pool_.Return(std::move(right));
    }
  }

  // Backward adds to an existing gradient: here to zeros, in place.
  void PointGradientsInto(const Gradient& gradient) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradient.views[i];
  }

  Result<void> SumOverRanks() {
    const SteadyTime start = std::chrono::steady_clock::now();
    const at::NoGradGuard no_grad;
    const int world = communicator_->world();
    std::vector<int64_t> node_counts;
    const std::vector<TreeNode> nodes = NodesOfAllRanks(node_counts);
    at::Tensor sent;
    at::Tensor received;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the gradients", [&] {
      const int64_t part = total_.flat.numel() / world;
      received = at::empty({static_cast<int64_t>(nodes.size()), part}, total_.flat.options());
      sent = at::empty({world, static_cast<int64_t>(sums_.size()), part}, total_.flat.options());
      for (std::size_t i = 0; i < sums_.size(); ++i)
        sent.select(1, static_cast<int64_t>(i)).copy_(sums_[i].flat.view({world, part}));
      sent = sent.view({-1, part});
    }));
    LOCKSTEP_TRY(communicator_->AllToAll(received, node_counts, sent));
    LOCKSTEP_TRY(at::Tensor mine, CatchTorch(ErrorCode::kInternal, "adding up the gradients",
                                             [&] { return SumAlongTree(nodes, received.unbind()); }));
    LOCKSTEP_TRY(communicator_->AllGatherInto(total_.flat, mine));
    PointGradientsInto(total_);
    exposed_seconds_ = Seconds(std::chrono::steady_clock::now() - start).count();
    return {};
  }

  // From left to right over the tree, and the number of nodes of each rank.
  std::vector<TreeNode> NodesOfAllRanks(std::vector<int64_t>& counts) const {
    std::vector<TreeNode> all;
    int64_t begin = 0;
    for (const int64_t micro_batches : micro_batches_) {
      const std::vector<TreeNode> nodes = NodesOfRange(begin, begin + micro_batches, leaves_);
      all.insert(all.end(), nodes.begin(), nodes.end());
      counts.push_back(static_cast<int64_t>(nodes.size()));
      begin += micro_batches;
    }
    return all;
  }

  at::Tensor SumAlongTree(const std::vector<TreeNode>& nodes, const std::vector<at::Tensor>& values) const {
    TreeStack stack(leaves_);
    std::vector<at::Tensor> sums;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      sums.push_back(values[i]);
      for (int additions = stack.Push(nodes[i]); additions > 0; --additions) {
        const at::Tensor right = std::move(sums.back());
        sums.pop_back();
        sums.back().add_(right);
      }
    }
    LOCKSTEP_CHECK(sums.size() == 1, "all leaves of a step make one root");
    return sums.front();
  }

  const std::shared_ptr<comm::Communicator> communicator_;  // shared with the loop, which may abort it
  std::vector<at::Tensor> parameters_;
  GradientPool pool_;
  Gradient total_;  // over all ranks
  // State of the current step.
  std::vector<int64_t> micro_batches_;  // of each rank
  int64_t leaves_ = 0;                  // over all ranks
  int64_t next_leaf_ = 0;
  TreeStack open_{0};
  std::vector<Gradient> sums_;  // of the open nodes
  double exposed_seconds_ = 0;
};

}  // namespace

Result<std::unique_ptr<Strategy>> MakeDeterministicDataParallel(
    std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  if (parameters.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  const bool is_of_one_type = std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& one) {
    return one.scalar_type() == parameters.front().scalar_type();
  });
  if (!is_of_one_type)
    return Error{ErrorCode::kInvalidArgument,
                 "spec.training.determinism: World needs parameters of one type; use None"};
  std::unique_ptr<Strategy> strategy;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "preparing data parallelism", [&] {
    strategy = std::make_unique<DeterministicDataParallel>(std::move(communicator), std::move(parameters));
  }));
  return strategy;
}

}  // namespace lockstep::parallel
