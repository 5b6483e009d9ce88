#pragma once
// Evaluates the test set, each sample once over all ranks. Sums are reduced, never means. With
// spec.training.optimizer.weightAverage the averages of the weights are evaluated, which takes memory for the
// weights of this rank once more; afterwards the weights are what they were, also after an error. Step thread;
// the loader's threads read samples ahead.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/data/loader.h"
#include "runtime/train/state/training_state.h"
#include "runtime/train/step/batch_math.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;            // mean over the test set without its corrupt records
  double accuracy = 0;        // share of correct answers among the same samples
  int64_t corrupt = 0;        // records that were skipped
  int64_t local_corrupt = 0;  // by this rank
  bool complete = true;       // false: a rank had to leave the round before it had finished its share
};

class Evaluator {
 public:
  // The arguments must outlive the object. spec.evaluation must be set when Run is called.
  Evaluator(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test);

  // `speeds` has one entry per rank of the round and divides the samples. `leave` is called before each
  // batch: if it returns true on any rank, all ranks return early. kAborted: the round broke. kCancelled:
  // `stop` was requested while waiting for data.
  [[nodiscard]] Result<Evaluation> Run(comm::Communicator& communicator, std::span<const double> speeds,
                                       const std::function<bool()>& leave, const std::stop_token& stop);

 private:
  struct Sums {
    double loss = 0;
    double correct = 0;
    double count = 0;
    double leaving = 0;
    double corrupt = 0;
  };
  // Stops between two batches if the round is over or a rank has to leave.
  [[nodiscard]] Result<Sums> RunPart(const PartToEvaluate& part, comm::Communicator& communicator,
                                     const std::function<bool()>& leave, const std::stop_token& stop);
  [[nodiscard]] std::vector<Slice> Batches(Slice share) const;
  // Starts the loader on the batches of the share and returns them. Next returns them one after another.
  [[nodiscard]] std::vector<Slice> Load(Slice share);
  [[nodiscard]] Result<data::Batch> Next(const std::stop_token& stop);

  const api::TrainingSpec& spec_;
  TrainingState& state_;
  const data::Dataset& test_;
  data::Loader loader_;
};

}  // namespace lockstep::train
