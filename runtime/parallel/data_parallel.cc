#include "runtime/parallel/data_parallel.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/clock.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

// The first bucket is small so that communication starts early in the backward pass.
constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;
constexpr std::size_t kBucketBytes = std::size_t{25} << 20;

// The sums that this rank has started in the current step. They distinguish a failed backward pass from a
// broken round, and show when this rank's own part was done.
struct StartedSums {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  SteadyTime last_start;
  std::optional<comm::Communicator::PeerWait> wait;  // from the last sum's start to the end of the backward
};

bool AnyFailed(const StartedSums& started) {
  return std::any_of(started.works.begin(), started.works.end(),
                     [](const auto& work) { return work->isCompleted() && work->exception() != nullptr; });
}

class SumHook final : public c10d::CommHookInterface {
 public:
  SumHook(comm::Communicator& communicator, StartedSums& started, GradientFormat format)
      : communicator_(communicator), started_(started), format_(format) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor& sums = bucket.getBufferRef();
    const bool as_they_are = format_.type == sums.scalar_type();
    std::vector<at::Tensor> sent = {as_they_are ? sums : sums.div(format_.samples).to(format_.type)};
    communicator_.CountGiven(sent.front());
    started_.works.push_back(communicator_.group()->allreduce(sent));
    started_.last_start = std::chrono::steady_clock::now();
    if (bucket.isLast()) started_.wait.emplace(communicator_);
    c10d::Work& sum = *started_.works.back();
    auto future = sent.front().is_cpu() ? communicator_.FutureOf(sum) : sum.getFuture();
    if (as_they_are) return future;
    const auto unpack = [sums, samples = format_.samples](c10::ivalue::Future& received) {
      const at::NoGradGuard no_grad;
      sums.copy_(received.value().toTensorVector().front()).mul_(samples);
      return c10::IValue(sums);
    };
    return future->then(unpack, future->elementType());
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  comm::Communicator& communicator_;
  StartedSums& started_;
  const GradientFormat format_;
};

std::shared_ptr<c10d::Reducer> MakeReducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                           const std::vector<at::Tensor>& parameters) {
  const std::vector<bool> sparse(parameters.size(), false);
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kFirstBucketBytes, kBucketBytes}, sparse);
  // Gradients become ready roughly from the last layer to the first.
  std::reverse(buckets.begin(), buckets.end());
  return std::make_shared<c10d::Reducer>(
      parameters, buckets, group, sparse, /*bucket_bytes_cap=*/static_cast<int64_t>(kBucketBytes),
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
      /*param_names=*/std::unordered_map<std::size_t, std::string>{},
      /*first_bucket_bytes_cap=*/static_cast<int64_t>(kFirstBucketBytes),
      /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

// The parameters that get no gradient from `loss`.
std::vector<at::Tensor> Unreached(const at::Tensor& loss, const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const torch::autograd::Node*> reached;
  std::vector<const torch::autograd::Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid() && reached.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
  std::vector<at::Tensor> unreached;
  for (const at::Tensor& parameter : parameters) {
    if (!reached.contains(torch::autograd::impl::grad_accumulator(parameter).get()))
      unreached.push_back(parameter);
  }
  return unreached;
}

// Zero times one element of each parameter: it gives each a gradient of zero.
at::Tensor Nothing(const std::vector<at::Tensor>& parameters) {
  at::Tensor nothing;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor zero = parameter.reshape(-1).narrow(0, 0, 1).sum() * 0;
    nothing = nothing.defined() ? nothing + zero : zero;
  }
  return nothing;
}

class DataParallel final : public Strategy {
 public:
  DataParallel(std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters,
               GradientFormat format)
      : communicator_(std::move(communicator)), parameters_(std::move(parameters)) {
    // Gradients of an earlier round are views of that round's buckets.
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    reducer_ = MakeReducer(communicator_->group(), parameters_);
    reducer_->register_comm_hook(std::make_unique<SumHook>(*communicator_, started_, format));
    // Without a logger the Reducer dereferences a null pointer when it has an error to report.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }

  ~DataParallel() override {
    reducer_->remove_autograd_hooks();
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

  Result<void> BeginStep(std::span<const int64_t>) override {
    started_.works.clear();
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, "preparing the step", [this] {
      // A collective once per round: rebuilds the buckets in the order in which the first backward pass
      // produced the gradients.
      const comm::Communicator::PeerWait wait(*communicator_);
      reducer_->rebuild_buckets();
      reducer_->prepare_for_forward();
      // Undefined gradients, instead of zeroed buckets: the backward pass then copies into the buckets,
      // without clearing them and without reading zeros to add to.
      for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    }));
    // After an abort of a device's group, c10d's own wait for that collective returns without an exception.
    if (communicator_->aborted())
      return Error{ErrorCode::kAborted, "preparing the step: the round was aborted"};
    return {};
  }

  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    const Result<void> done = CatchTorch(ErrorCode::kInternal, "backward pass", [&] {
      // Only for the last micro-batch: earlier gradients are accumulated locally and sent once.
      if (last) reducer_->prepare_for_backward({});
      loss_sum.backward();
      // The sums wait for all gradients, including those of parameters that this loss did not use.
      if (last && !started_.wait.has_value()) Nothing(Unreached(loss_sum, parameters_)).backward();
    });
    started_.wait.reset();
    if (last) exposed_seconds_ = SecondsSinceLastStart();
    if (done.ok()) return {};
    const bool broken = communicator_->aborted() || AnyFailed(started_);
    return broken ? Error{ErrorCode::kAborted, done.error().message} : done.error();
  }

  Result<void> BackwardOfNothing() override {
    const at::AutoGradMode with_gradients(true);
    LOCKSTEP_TRY(const at::Tensor nothing,
                 CatchTorch(ErrorCode::kInternal, "empty share", [&] { return Nothing(parameters_); }));
    return Backward(nothing, /*last=*/true);
  }

  // Gloo's sums are complete when the pass is; those of a device are only queued.
  Result<void> AwaitSum() override {
    const comm::Communicator::PeerWait wait(*communicator_);
    for (const auto& work : started_.works)
      LOCKSTEP_TRY(communicator_->WaitFor(*work, parameters_.front(), "sum of the gradients"));
    exposed_seconds_ = SecondsSinceLastStart();
    return {};
  }

  double exposed_seconds() const override { return exposed_seconds_; }

 private:
  [[nodiscard]] double SecondsSinceLastStart() const {
    return Seconds(std::chrono::steady_clock::now() - started_.last_start).count();
  }

  const std::shared_ptr<comm::Communicator> communicator_;  // shared with the loop, which may abort it
  std::vector<at::Tensor> parameters_;
  StartedSums started_;
  double exposed_seconds_ = 0;
  std::shared_ptr<c10d::Reducer> reducer_;  // shared with the logger, by c10d's design
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace

Result<std::unique_ptr<Strategy>> MakeDataParallel(std::shared_ptr<comm::Communicator> communicator,
                                                   std::vector<at::Tensor> parameters,
                                                   GradientFormat format) {
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  if (parameters.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  std::unique_ptr<Strategy> strategy;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, "preparing data parallelism", [&] {
    strategy = std::make_unique<DataParallel>(std::move(communicator), std::move(parameters), format);
  }));
  return strategy;
}

}  // namespace lockstep::parallel
