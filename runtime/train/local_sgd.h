#pragma once
// Local SGD: each rank takes the steps of a window alone, with its share of each global batch, and then all
// take the mean of what they hold, weighted by the samples that each used. DiLoCo where an outer step is
// asked for.
//
// The window is the transaction, as the step is elsewhere (step.h): what a rank held at its begin is kept,
// and whatever fails before the last sum puts it back. A sum needs every rank's part, so ranks differ by one
// window at most, and the higher one wins in the next round. No step counts twice; a break costs at most the
// steps of a window. Step thread.

#include <functional>
#include <stop_token>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/step.h"

namespace lockstep::train {

// What the window asks and tells whoever runs it.
struct WindowCalls {
  // At its end, so that what was wished meanwhile is heard.
  std::function<Wishes()> wishes;
  // After each step of this rank: how many it has taken. They do not count yet.
  std::function<void(int64_t steps)> taken;
};

class LocalSgd {
 public:
  LocalSgd(const StepContext& context, StepRunner& runner) : context_(context), runner_(runner) {}

  // The steps up to `end`, and the mean. Errors as StepRunner::Run's; after one the state is what it was
  // before, and the runner must be told the shares again.
  [[nodiscard]] Result<StepReport> Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                       int64_t end, const WindowCalls& calls, const std::stop_token& stop);

 private:
  // What this rank's steps came to.
  struct Tally {
    int64_t samples = 0;
    int64_t applied_samples = 0;
    double loss_sum = 0;           // over the applied ones
    double gradient_norm_sum = 0;  // weighted by them
    int64_t skipped = 0;
    double learning_rate = 0;  // of the newest step

    void Add(const StepReport& step);
  };

  void Remember();
  void GoBack(int64_t step);
  [[nodiscard]] Result<StepReport> RunOrFail(comm::Communicator& communicator, parallel::Strategy& strategy,
                                             int64_t end, const WindowCalls& calls,
                                             const std::stop_token& stop);
  [[nodiscard]] Result<StepReport> Meet(comm::Communicator& communicator, const Tally& mine,
                                        const Wishes& wishes);
  [[nodiscard]] Result<void> Average(comm::Communicator& communicator, double weight);
  void TakeOuterStep();

  StepContext context_;
  StepRunner& runner_;
  std::vector<at::Tensor>
      before_;  // of the state's tensors, on its device; made for the first window; parameters come first
};

}  // namespace lockstep::train
