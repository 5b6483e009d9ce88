#pragma once
// One step as a transaction: forward and backward pass of this rank's share, the sum over all ranks, and only
// when the sum is known to be good on this machine, the optimizer. A failure before that changes nothing. No
// vote is needed: to finish a step's sum a rank needs every rank's part, so committed steps of two ranks
// differ by at most one, and the higher one wins in the next round. Step thread.
//
// With localsgd and async the transaction is a window of steps (local_sgd.h), which a rank takes alone.

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/data/loader.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/replicated/replicas.h"
#include "runtime/train/replicated/replicated_model.h"
#include "runtime/train/replicated/step_graphs.h"
#include "runtime/train/step/batch_math.h"
#include "runtime/train/step/not_finite_steps.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {

class StepRunner {
 public:
  StepRunner(const StepContext& context, ReplicatedModel& state);

  // Loads the batches from the state's step up to `until_step`, for this rank of a round with these speeds.
  // It must be called again at `until_step`.
  void SetShares(int rank, std::vector<double> speeds, int64_t until_step);
  // Takes the next step. kAborted: the round broke. kCancelled: `stop` was requested while waiting for data.
  // Any other error comes from the training itself. After an error the state is what it was before.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       const Requests& requests, const std::stop_token& stop);
  // Takes the same step on this rank alone, with its own share as the batch; the report covers that share.
  // Nothing is committed: the caller commits, or restores the state and calls Undone.
  [[nodiscard]] Result<StepReport> RunAlone(parallel::Strategy& strategy, const std::stop_token& stop);

  // Instead of SetShares: loads what `source` returns, for this rank of a round.
  void Follow(int rank, data::Loader::Source source);
  // As RunAlone, with these samples of the step as the batch; its micro-batches are the next draws of the
  // source. Afterwards the state's step is the one after it.
  [[nodiscard]] Result<StepReport> RunClaim(parallel::Strategy& strategy, int64_t step, const Slice& claimed,
                                            const std::stop_token& stop);
  void Undone() { not_finite_.Forget(); }

  // Must be called before the round's communicator is closed.
  void LeaveRound();

 private:
  // Null: this rank takes the step alone.
  using Peers = comm::Communicator*;
  [[nodiscard]] RankShare NextShare() const;
  [[nodiscard]] Result<StepReport> Attempt(Peers peers, parallel::Strategy& strategy, const RankShare& share,
                                           const Requests& requests, const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> RunOrFail(Peers peers, parallel::Strategy& strategy,
                                             const RankShare& share, const Requests& requests,
                                             const std::stop_token& stop);
  // The result of the forward passes.
  struct Forwarded {
    at::Tensor loss;      // of the last micro-batch
    int64_t corrupt = 0;  // samples left out, over all micro-batches
  };
  void Seed(const Slice& positions, std::span<const at::Device> devices) const;
  [[nodiscard]] at::Tensor LossOf(const Replica& replica, const data::Batch& batch) const;
  [[nodiscard]] at::Tensor SeededLossOf(const Part& part) const;
  [[nodiscard]] Result<data::Batch> NextBatch(const std::stop_token& stop);
  [[nodiscard]] Result<Forwarded> Forward(const Slice& piece, const std::stop_token& stop);
  // Computes the share's micro-batches except for the backward pass of the last one. Adds the loss of each
  // to `losses`, on the device.
  [[nodiscard]] Result<Forwarded> ForwardShare(const std::vector<Slice>& pieces, parallel::Strategy& strategy,
                                               const std::stop_token& stop, std::vector<at::Tensor>& losses);
  // `loss` is undefined if the share is empty.
  [[nodiscard]] Result<void> Backward(parallel::Strategy& strategy, const at::Tensor& loss, bool last);
  // Computes all passes of the share, and the sum of the gradients, with CUDA graphs.
  [[nodiscard]] Result<void> TakeByGraphs(const std::vector<Slice>& pieces, parallel::Strategy& strategy,
                                          const std::stop_token& stop, std::vector<at::Tensor>& losses);
  [[nodiscard]] Result<at::Tensor> PassToRecord(parallel::Strategy& strategy, const data::Batch& batch,
                                                bool last);
  [[nodiscard]] Result<StepReport> Apply(const at::Tensor& sums, Peers peers, const RankShare& share,
                                         int64_t corrupt);
  // Locates the origin of a non-finite step, which will be skipped; all ranks call this. The summed gradient
  // does not show which rank caused it, so each rank computes its share again with the same samples and
  // random numbers.
  [[nodiscard]] Result<std::string> WhereNotFinite(Peers peers, const std::vector<Slice>& pieces);

  const StepContext context_;
  ReplicatedModel& state_;
  const MicroBatchPolicy micro_batch_policy_;
  data::Loader loader_;
  int rank_ = 0;
  std::vector<double> speeds_ = {1};  // of the round's ranks
  NotFiniteSteps not_finite_;
  std::vector<at::Tensor> buffers_before_;
  std::unique_ptr<StepGraphs> graphs_;  // absent: each pass is launched kernel by kernel
};

}  // namespace lockstep::train
