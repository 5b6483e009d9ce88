#pragma once
// Local SGD: each rank takes the steps of a window alone, and then all take the mean of what they hold,
// weighted by the samples that each used. DiLoCo where an outer step is asked for. With localsgd a rank gets
// its share of each global batch; with async the window's samples are cut into batches of that size, and each
// rank claims one after the other until none is left (window_claims.h), so that a slow one holds nobody up.
//
// The window is the transaction, as the step is elsewhere (step.h): what a rank held at its begin is kept,
// and whatever fails before the last sum puts it back. A sum needs every rank's part, so ranks differ by one
// window at most, and the higher one wins in the next round. No step counts twice; a break costs at most the
// steps of a window. Step thread.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/shared_counter.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/step.h"

namespace lockstep::train {

// What the window asks and tells whoever runs it.
struct WindowCalls {
  // At its end, so that what was wished meanwhile is heard.
  std::function<Wishes()> wishes;
  // Before each step of this rank: which step of the training its samples belong to, and how many steps it
  // has taken since the window's begin. They do not count yet.
  std::function<void(int64_t step, int64_t taken)> begins;
  // When it has no more to do and waits for the others.
  std::function<void()> waits;
};

class LocalSgd {
 public:
  LocalSgd(const StepContext& context, StepRunner& runner) : context_(context), runner_(runner) {}

  // Before the first window of a round.
  void EnterRound(const comm::Communicator& communicator);
  // The steps up to `end`, and the mean. Errors as StepRunner::Run's; after one the state is what it was
  // before, and the runner must be told the shares again.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       int64_t end, const WindowCalls& calls, const std::stop_token& stop);

 private:
  // What this rank's steps came to.
  struct Tally {
    int64_t samples = 0;  // without corrupt ones
    int64_t corrupt = 0;
    int64_t applied_samples = 0;
    double loss_sum = 0;           // over the applied ones
    double gradient_norm_sum = 0;  // weighted by them
    int64_t skipped = 0;
    double rate = 0;    // of async: batches in a second, 0 where it had none
    int64_t asked = 0;  // of async: how often it raised the counter
    int64_t whole = 0;  // of async: samples of the window, whoever used them

    void Add(const StepReport& step);
  };
  // What ranks that claim know of each other, all the same.
  struct Claiming {
    std::shared_ptr<comm::SharedCounter> counter;  // shared: see WindowClaims
    int rank = 0;
    int world = 1;
    int64_t first = 0;          // where the counter stood at the window's begin
    std::vector<double> rates;  // in the first window equal ones
  };

  void Remember();
  void GoBack(int64_t step);
  [[nodiscard]] Result<StepReport> RunOrFail(comm::Communicator& communicator, parallel::Strategy& strategy,
                                             int64_t end, const WindowCalls& calls,
                                             const std::stop_token& stop);
  [[nodiscard]] Result<Tally> TakeShares(parallel::Strategy& strategy, int64_t end, const WindowCalls& calls,
                                         const std::stop_token& stop);
  [[nodiscard]] Result<Tally> TakeClaims(comm::Communicator& communicator, parallel::Strategy& strategy,
                                         int64_t end, const WindowCalls& calls, const std::stop_token& stop);
  [[nodiscard]] double WorkSeconds() const;
  [[nodiscard]] Result<StepReport> Meet(comm::Communicator& communicator, const Tally& mine,
                                        const Wishes& wishes);
  [[nodiscard]] Result<void> Average(comm::Communicator& communicator, double weight);
  void TakeOuterStep();

  StepContext context_;
  StepRunner& runner_;
  std::optional<Claiming> claiming_;  // of async, in a round
  // Of the state's tensors, on its device; made for the first window; parameters come first.
  std::vector<at::Tensor> before_;
};

}  // namespace lockstep::train
