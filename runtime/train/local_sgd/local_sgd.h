#pragma once
// Local SGD: each rank takes the steps of a window alone; then all ranks average their parameters, weighted
// by the number of samples that each used. With an outer step this is DiLoCo. With localsgd a rank gets its
// share of each global batch. With async the window's samples are cut into batches of that size, and ranks
// claim them one by one until none is left (window_claims.h), so a slow rank does not delay the others.
//
// The window is the transaction, as the step is elsewhere (replicated/step_runner.h): the rank keeps a copy
// of its state from the beginning of the window, and any failure before the last sum restores it. A sum needs
// every rank's part, so committed steps of two ranks differ by at most one window, and the higher one wins in
// the next round. No step counts twice, and a broken round costs at most the steps of one window. Step
// thread.

#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/shared_counter.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/local_sgd/local_sgd_state.h"
#include "runtime/train/replicated/step_runner.h"

namespace lockstep::train {

class LocalSgd {
 public:
  LocalSgd(const StepContext& context, LocalSgdState& state, StepRunner& runner)
      : context_(context), state_(state), runner_(runner) {}

  // Called before the first window of a round.
  void EnterRound(const comm::Communicator& communicator);
  // Takes the steps up to `end` and averages. Errors are those of StepRunner::Run. After an error the state
  // is what it was before, and the runner's shares must be set again.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       int64_t end, const StepCalls& calls, const std::stop_token& stop);

 private:
  // What this rank's steps amount to.
  struct Tally {
    int64_t samples = 0;  // without corrupt ones
    int64_t corrupt = 0;
    int64_t applied_samples = 0;
    double loss_sum = 0;           // over the applied samples
    double gradient_norm_sum = 0;  // weighted by the applied samples
    int64_t skipped = 0;
    double rate = 0;    // async: batches per second, 0 if it had none
    int64_t asked = 0;  // async: how often it incremented the counter
    int64_t whole = 0;  // async: samples of the whole window, used by any rank

    void Add(const StepReport& step);
  };
  // What the ranks know of each other's speed under async; equal on all ranks.
  struct Claiming {
    std::shared_ptr<comm::SharedCounter> counter;  // shared: see WindowClaims
    int rank = 0;
    int world = 1;
    int64_t first = 0;          // the counter's value at the beginning of the window
    std::vector<double> rates;  // equal for all ranks in the first window
  };

  void Remember();
  void GoBack(int64_t step);
  [[nodiscard]] Result<StepReport> RunOrFail(comm::Communicator& communicator, parallel::Strategy& strategy,
                                             int64_t end, const StepCalls& calls,
                                             const std::stop_token& stop);
  [[nodiscard]] Result<Tally> TakeShares(parallel::Strategy& strategy, int64_t end, const StepCalls& calls,
                                         const std::stop_token& stop);
  [[nodiscard]] Result<Tally> TakeClaims(comm::Communicator& communicator, parallel::Strategy& strategy,
                                         int64_t end, const StepCalls& calls, const std::stop_token& stop);
  [[nodiscard]] double WorkSeconds() const;
  [[nodiscard]] Result<StepReport> SynchronizeWindow(comm::Communicator& communicator, const Tally& mine,
                                                     const Requests& requests);
  [[nodiscard]] Result<void> Average(comm::Communicator& communicator, double weight);
  void TakeOuterStep();

  const StepContext context_;
  LocalSgdState& state_;
  StepRunner& runner_;
  std::optional<Claiming> claiming_;  // async only, within a round
  // The state's tensors at the beginning of the window, on its device, parameters first. Allocated for the
  // first window.
  std::vector<at::Tensor> before_;
};

}  // namespace lockstep::train
