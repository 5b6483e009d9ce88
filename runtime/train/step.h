#pragma once
// One step as a transaction: forward and backward of this rank's share, the sum over all ranks, and only when
// that is known to be good on this machine, the optimizer. Whatever fails before changes nothing. No vote is
// needed: to finish the sum of a step a rank needs every rank's part, so committed steps of two ranks differ
// by one at most, and the higher one wins in the next round. Step thread.
//
// With localsgd and async such a transaction is a window of steps (local_sgd.h), which a rank takes alone.

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/profile_window.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/data/loader.h"
#include "runtime/data/training_samples.h"
#include "runtime/models/model.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/batch_math.h"
#include "runtime/train/claims.h"
#include "runtime/train/phase_clock.h"
#include "runtime/train/replicas.h"
#include "runtime/train/sample_ledger.h"
#include "runtime/train/step_graphs.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

// What this rank wants all to do after the step. It travels with the step's sums, so that all act at the same
// step.
struct Wishes {
  bool yield = false;            // leave the round
  bool stop = false;             // leave for good
  bool save = false;             // store a checkpoint
  api::ProfileWindow profile{};  // steps to record, all of them later ones; only rank 0; up to step 0: none
};

// What a step came to, or with localsgd and async the steps of a window; the same on all ranks but for
// what is called local and skipped. Counts are of the samples that took part; those whose records are corrupt
// are told beside them.
struct StepReport {
  int64_t steps = 1;
  double loss = 0;           // mean over the global batch; of a window over all that it applied
  double gradient_norm = 0;  // of the mean gradient, before clipping
  double learning_rate = 0;
  int64_t global_count = 0;
  int64_t local_count = 0;
  int64_t global_corrupt = 0;
  int64_t local_corrupt = 0;
  bool applied = true;     // false: not finite, so the parameters were left alone
  int64_t skipped = 0;     // steps of this rank that were not applied
  std::string not_finite;  // where, by rank and layer; empty where the step was applied
  int yielding = 0;        // ranks that wish it
  int stopping = 0;
  int saving = 0;
  api::ProfileWindow profile{};  // as in Wishes
};

// A single one may be an outlier and is skipped; so many in a row do not get better.
inline constexpr int kNotFiniteLimit = 3;
// The end of a training with so many, the last of which was before `step`.
[[nodiscard]] Error Diverged(int64_t step, const std::string& where);
// The end of a training that has nothing to learn from in `what`, all of whose samples are corrupt.
[[nodiscard]] Error AllCorrupt(const std::string& what, int64_t samples);

struct StepContext {
  const api::TrainingSpec& spec;
  const data::TrainingSamples& samples;
  int64_t total_steps = 0;
  TrainingState& state;
  SampleLedger& ledger;
  PhaseClock& phases;
  comm::DeviceBackend* device = nullptr;  // absent: the CPU
};

// Threads that make batches ready; none: whoever takes the steps reads by itself.
[[nodiscard]] int LoaderWorkers(const StepContext& context);
// Samples as the loader makes them ready: for a GPU in pinned memory.
[[nodiscard]] data::Loader::Read ReadOf(const StepContext& context);

class StepRunner {
 public:
  explicit StepRunner(const StepContext& context);

  // Loads the batches of the steps from the state's on, for this rank of a round with these speeds, up to
  // `until_step`: at that step it must be told again.
  void SetShares(int rank, std::vector<double> speeds, int64_t until_step);
  // The next step. kAborted: the round broke; kCancelled: `stop` while waiting for data; any other error is
  // the training's own. After an error the state is what it was before.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       const Wishes& wishes, const std::stop_token& stop);
  // The same step by this rank alone, with its own share for a batch; the report is of that share. Nothing is
  // committed: who asks for it does that, or puts the state back and says so.
  [[nodiscard]] Result<StepReport> RunAlone(parallel::Strategy& strategy, const std::stop_token& stop);

  // Instead of SetShares: loads what `source` says, for this rank of a round.
  void Follow(int rank, data::Loader::Source source);
  // As RunAlone, with what was claimed for a batch: its micro-batches are the source's next draws. The
  // state's step then is the one after the claim's.
  [[nodiscard]] Result<StepReport> RunClaim(parallel::Strategy& strategy, const Claim& claim,
                                            const std::stop_token& stop);
  void Undone() { not_finite_in_a_row_ = 0; }

  // Before the round's communicator is closed.
  void LeaveRound();

 private:
  // Absent: alone.
  using Peers = comm::Communicator*;
  [[nodiscard]] RankShare NextShare() const;
  [[nodiscard]] Result<StepReport> Attempt(Peers peers, parallel::Strategy& strategy, const RankShare& share,
                                           const Wishes& wishes, const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> RunOrFail(Peers peers, parallel::Strategy& strategy,
                                             const RankShare& share, const Wishes& wishes,
                                             const std::stop_token& stop);
  // What forward passes came to.
  struct Forwarded {
    at::Tensor loss;      // of the last one
    int64_t corrupt = 0;  // samples that were left out, of all
  };
  void Seed(const Slice& places, at::Device device) const;
  [[nodiscard]] at::Tensor LossOf(const Replica& replica, const data::Batch& batch) const;
  [[nodiscard]] at::Tensor SeededLossOf(const Part& part) const;
  [[nodiscard]] Result<data::Batch> NextBatch(const std::stop_token& stop);
  [[nodiscard]] Result<Forwarded> Forward(const Slice& piece, const std::stop_token& stop);
  // The share's micro-batches, but for the last one's backward pass. `losses` is what each came to.
  [[nodiscard]] Result<Forwarded> ForwardShare(const std::vector<Slice>& pieces, parallel::Strategy& strategy,
                                               const std::stop_token& stop, std::span<double> losses);
  // `loss` is undefined where the share is empty.
  [[nodiscard]] Result<void> Backward(parallel::Strategy& strategy, const at::Tensor& loss, bool last);
  // All passes of the share, and the sum of the gradients.
  [[nodiscard]] Result<void> TakeByGraphs(const std::vector<Slice>& pieces, parallel::Strategy& strategy,
                                          const std::stop_token& stop, std::span<double> losses);
  [[nodiscard]] Result<at::Tensor> PassToRecord(parallel::Strategy& strategy, const data::Batch& batch,
                                                bool last);
  [[nodiscard]] Result<StepReport> Apply(const at::Tensor& sums, Peers peers, const RankShare& share,
                                         int64_t corrupt);
  // Of a step that will be skipped; every rank asks. What was summed has swallowed whose part it was, so each
  // share is done again, with the same samples and random numbers.
  [[nodiscard]] Result<std::string> WhereNotFinite(Peers peers, const std::vector<Slice>& pieces);

  StepContext context_;
  const Cutting cutting_;
  data::Loader loader_;
  int rank_ = 0;
  std::vector<double> speeds_ = {1};  // of the round's ranks
  int not_finite_in_a_row_ = 0;
  std::vector<at::Tensor> buffers_before_;
  std::unique_ptr<StepGraphs> graphs_;  // absent: each pass is queued kernel by kernel
};

}  // namespace lockstep::train
