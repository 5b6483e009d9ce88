#pragma once
// Takes the steps of a training. Each way to hold the state has a stepper (training_state.h). Step thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/data/loader.h"
#include "runtime/data/training_samples.h"
#include "runtime/train/step/phase_clock.h"
#include "runtime/train/step/sample_ledger.h"
#include "runtime/train/step/step_totals.h"

namespace lockstep::comm {
class DeviceBackend;
}

namespace lockstep::train {

// The result of a step, or of the steps of a window with localsgd and async. It is the same on all ranks
// except for the fields called local and skipped. Counts exclude samples with corrupt records, which are
// counted separately.
struct StepReport {
  int64_t steps = 1;
  double loss = 0;           // mean over the global batch; for a window over all applied samples
  double gradient_norm = 0;  // of the mean gradient, before clipping
  double learning_rate = 0;
  StepTotals all;  // of all ranks
  int64_t local_count = 0;
  int64_t local_corrupt = 0;
  bool applied = true;     // false: not finite, so the parameters were not changed
  int64_t skipped = 0;     // steps of this rank that were not applied
  std::string not_finite;  // the responsible ranks and layers; empty if the step was applied
};

// The error that ends a training whose samples in `what` are all corrupt.
[[nodiscard]] Error AllCorrupt(const std::string& what, int64_t samples);

struct StepContext {
  const api::TrainingSpec& spec;
  const data::TrainingSamples& samples;
  int64_t total_steps = 0;
  SampleLedger& ledger;
  PhaseClock& phases;
  comm::DeviceBackend* device = nullptr;  // absent: the CPU
};

// Number of threads that prepare batches. 0: the step thread reads them itself.
[[nodiscard]] int LoaderWorkers(const StepContext& context);
// How the loader reads samples: for a GPU into pinned memory.
[[nodiscard]] data::Loader::Read ReadOf(const StepContext& context, at::Device device);

// Callbacks of a step, or of a window of steps, to its caller.
struct StepCalls {
  // Called when this rank has done its part, so that requests that arrived meanwhile are included.
  std::function<Requests()> requests;
  // Called before each step of this rank with the training step that its samples belong to, and the number of
  // steps taken since the window began. These steps are not committed yet.
  std::function<void(int64_t step, int64_t taken)> begins;
  // Called when this rank has taken the steps of a window and waits for the others.
  std::function<void()> waits;
};

class Stepper {
 public:
  virtual ~Stepper() = default;

  // All ranks of a new round call it after TrainingState::Sync. kInvalidArgument, with the field's name: the
  // model does not support the strategy.
  [[nodiscard]] virtual Result<void> EnterRound(std::shared_ptr<comm::Communicator> communicator) = 0;
  // Divides the steps from the state's up to `until_step` among the ranks, one speed for each. Called after
  // EnterRound, and again at `until_step`.
  virtual void Share(std::vector<double> speeds, int64_t until_step) = 0;
  // Takes the next step, or all steps of a window up to `end`. kAborted: the round broke. kCancelled: `stop`
  // was requested while waiting for data. Any other error comes from the training itself. After an error the
  // state is what it was before.
  [[nodiscard]] virtual Result<StepReport> Run(int64_t end, const StepCalls& calls,
                                               const std::stop_token& stop) = 0;
  // Must be called before the round's communicator is closed.
  virtual void LeaveRound() {}
  // Drops what belongs to the round, which takes milliseconds. Must be called before the next EnterRound.
  virtual void ForgetRound() = 0;
};

}  // namespace lockstep::train
