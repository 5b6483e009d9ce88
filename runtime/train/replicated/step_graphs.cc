#include "runtime/train/replicated/step_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// c10d's Reducer measures its first ten steps with host events, which cannot be recorded; its buckets are
// final after the first step.
constexpr int64_t kStepsBefore = 11;
// Maximum number of recorded steps, each for one combination of micro-batch sizes and with its own memory.
// Usually there are one, and another one for the end of an epoch.
constexpr std::size_t kMostRecordedSteps = 4;
// The first failure may be caused by a peer that died meanwhile.
constexpr int kMostFailures = 2;

}  // namespace

struct StepGraphs::RecordedPass {
  data::Batch batch;  // the memory from which the graph reads it
  std::unique_ptr<comm::DeviceGraph> graph;
  at::Tensor loss;
};

struct StepGraphs::RecordedStep {
  std::vector<Slice> pieces;
  std::vector<RecordedPass> passes;
  std::vector<at::Tensor> gradients;  // after the last pass
  int64_t bytes_given = 0;            // by the graph to the round's group
};

StepGraphs::StepGraphs(comm::DeviceBackend& device, std::vector<at::Tensor> trained)
    : device_(device),
      trained_(std::move(trained)),
      factor_(at::ones({}, at::TensorOptions(at::kDouble).device(device.device()))) {
  device_.LeaveDefaultStream();
}

StepGraphs::~StepGraphs() = default;

StepGraphs::Way StepGraphs::Begin(comm::Communicator& round, const std::vector<Slice>& pieces,
                                  double factor) {
  round_ = &round;
  next_pass_ = 0;
  factor_.fill_(factor);
  if (++steps_of_round_ <= kStepsBefore || pieces.empty() || failures_ == kMostFailures)
    return Way::kPassByPass;
  const auto are_alike = [](const Slice& one, const Slice& other) { return one.size() == other.size(); };
  const auto known = std::find_if(steps_.begin(), steps_.end(), [&](const auto& step) {
    return std::equal(step->pieces.begin(), step->pieces.end(), pieces.begin(), pieces.end(), are_alike);
  });
  if (known != steps_.end()) {
    current_ = known->get();
    for (std::size_t i = 0; i < trained_.size(); ++i) trained_[i].mutable_grad() = current_->gradients[i];
    round.CountGiven(current_->bytes_given);
    return Way::kReplay;
  }
  if (steps_.size() == kMostRecordedSteps) return Way::kPassByPass;
  steps_.push_back(std::make_unique<RecordedStep>());
  current_ = steps_.back().get();
  current_->pieces = pieces;
  return Way::kRecord;
}

Result<at::Tensor> StepGraphs::Take(const data::Batch& batch, const Pass& pass) {
  const bool is_new = next_pass_ == current_->passes.size();
  if (is_new) LOCKSTEP_TRY(Record(batch, pass));
  RecordedPass& own = current_->passes[next_pass_++];
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "replaying a pass", [&] {
    if (!is_new) {
      own.batch.inputs.copy_(batch.inputs, /*non_blocking=*/true);
      own.batch.targets.copy_(batch.targets, /*non_blocking=*/true);
    }
    own.graph->Replay();
  }));
  return own.loss;
}

Result<void> StepGraphs::Record(const data::Batch& batch, const Pass& pass) {
  RecordedPass fresh;
  Result<at::Tensor> loss = at::Tensor();
  const int64_t given_before = round_->bytes_given();
  const Result<void> recorded = CatchTorch(ErrorCode::kInternal, "recording a pass", [&] {
    const auto copy = [&](const at::Tensor& from) { return from.to(device_.device(), false, /*copy=*/true); };
    fresh.batch = {copy(batch.inputs), copy(batch.targets)};
    fresh.graph = device_.NewGraph();
    fresh.graph->Record([&] { loss = pass(fresh.batch); });
    if (loss.ok()) fresh.loss = loss->detach();
  });
  // An error during recording also ends it.
  if (!loss.ok() || !recorded.ok()) return CannotBeRecorded(loss.ok() ? recorded.error() : loss.error());
  failures_ = 0;
  current_->passes.push_back(std::move(fresh));
  current_->bytes_given += round_->bytes_given() - given_before;
  if (current_->passes.size() < current_->pieces.size()) return {};
  for (const at::Tensor& parameter : trained_) current_->gradients.push_back(parameter.grad());
  return {};
}

Error StepGraphs::CannotBeRecorded(const Error& error) {
  if (round_->aborted() || error.code == ErrorCode::kAborted) return error;
  if (++failures_ == kMostFailures) {
    log::Warning("spec.training.cudaGraph: steps cannot be recorded and are taken pass by pass from here on",
                 {{"reason", error.message}});
  }
  return {error.code, "recording the step for spec.training.cudaGraph: " + error.message};
}

Result<void> StepGraphs::Await() { return round_->AwaitQueued(device_, "the graphs of the step"); }

void StepGraphs::Forget() {
  current_ = nullptr;
  steps_.clear();
  steps_of_round_ = 0;
}

}  // namespace lockstep::train
