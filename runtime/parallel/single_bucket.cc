#include "runtime/parallel/single_bucket.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/clock.h"
#include "runtime/parallel/exact_floats.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

class SingleBucket final : public Strategy {
 public:
  SingleBucket(std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters)
      : communicator_(std::move(communicator)), parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) elements_ += parameter.numel();
    Forget();
  }

  ~SingleBucket() override { Forget(); }

  Result<void> BeginStep(std::span<const int64_t>) override {
    Forget();
    return {};
  }

  bool SumWithGradients(at::Tensor& sums) override {
    sums_ = sums;
    return true;
  }

  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "backward pass", [&] { loss_sum.backward(); }));
    return last ? BackwardOfNothing() : Result<void>();
  }

  Result<void> BackwardOfNothing() override {
    const SteadyTime start = std::chrono::steady_clock::now();
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the gradients", [this] { Pack(); }));
    LOCKSTEP_TRY(Sum());
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "unpacking the gradients", [this] { Unpack(); }));
    exposed_seconds_ = Seconds(std::chrono::steady_clock::now() - start).count();
    return {};
  }

  double exposed_seconds() const override { return exposed_seconds_; }

 private:
  void Forget() {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    sums_.reset();
  }

  Result<void> Sum() {
    RECORD_USER_SCOPE("reduce");  // in a profile the wait is a phase of its own, not a part of the pass
    return communicator_->SumInPlace(bucket_);
  }

  void Pack() {
    const at::NoGradGuard no_grad;
    const int64_t places = sums_.defined() ? sums_.numel() * static_cast<int64_t>(kFloatsOfDouble) : 0;
    if (!bucket_.defined() || bucket_.numel() != elements_ + places) MakeBucket(elements_ + places);
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> destinations;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& gradient = parameters_[i].grad();
      if (gradient.defined()) {
        gradients.push_back(gradient);
        destinations.push_back(views_[i]);
      } else {  // a branch that no pass of this rank took
        views_[i].zero_();
      }
    }
    if (!gradients.empty()) at::_foreach_copy_(destinations, gradients);
    if (places > 0) SplitIntoFloats({sums_.const_data_ptr<double>(), NumberOfSums()}, PlacesOfSums());
  }

  void Unpack() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = views_[i];
    if (sums_.defined()) JoinFloats(PlacesOfSums(), {sums_.data_ptr<double>(), NumberOfSums()});
  }

  // The views have the parameters' own strides: for the optimizer they are then one run of numbers.
  void MakeBucket(int64_t size) {
    bucket_ = at::empty({size}, at::kFloat);
    views_.clear();
    int64_t begin = 0;
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor part = bucket_.narrow(0, begin, parameter.numel());
      views_.push_back(parameter.is_non_overlapping_and_dense()
                           ? part.as_strided(parameter.sizes(), parameter.strides())
                           : part.view(parameter.sizes()));
      begin += parameter.numel();
    }
  }

  [[nodiscard]] std::size_t NumberOfSums() const { return static_cast<std::size_t>(sums_.numel()); }
  [[nodiscard]] std::span<float> PlacesOfSums() {
    return {bucket_.data_ptr<float>() + elements_, kFloatsOfDouble * NumberOfSums()};
  }

  const std::shared_ptr<comm::Communicator> communicator_;  // shared with the loop, which may abort it
  std::vector<at::Tensor> parameters_;
  int64_t elements_ = 0;           // of all parameters
  at::Tensor bucket_;              // the gradients, then the floats of the sums
  std::vector<at::Tensor> views_;  // of each parameter's gradient
  at::Tensor sums_;                // of the current step, or undefined
  double exposed_seconds_ = 0;
};

}  // namespace

bool FitSingleBucket(const std::vector<at::Tensor>& parameters) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    if (parameter.scalar_type() != at::kFloat || !parameter.is_cpu()) return false;
    bytes += static_cast<int64_t>(parameter.nbytes());
  }
  return bytes <= kSingleBucketBytes;
}

Result<std::unique_ptr<Strategy>> MakeSingleBucket(std::shared_ptr<comm::Communicator> communicator,
                                                   std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  if (parameters.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  std::unique_ptr<Strategy> strategy;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "preparing data parallelism", [&] {
    strategy = std::make_unique<SingleBucket>(std::move(communicator), std::move(parameters));
  }));
  return strategy;
}

}  // namespace lockstep::parallel
