#pragma once
// The test set, each sample once over all ranks; sums are reduced, never means. Step thread; the loader's
// threads read the samples ahead of it.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/data/loader.h"
#include "runtime/train/batch_math.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;            // mean over the test set but for its corrupt records
  double accuracy = 0;        // share of right answers, of those, too
  int64_t corrupt = 0;        // records that were skipped
  int64_t local_corrupt = 0;  // by this rank
  bool complete = true;       // false: a rank had to leave the round before its share was done
};

class Evaluator {
 public:
  // The arguments outlive it. By spec.evaluation, which must be there when it runs.
  Evaluator(const api::TrainingSpec& spec, TrainingState& state, const data::Dataset& test);

  // `speeds` are of all ranks of the round and divide the samples; where layers are divided, pipelines get equal
  // shares. `leave` is asked between batches: where it is true on any rank, all come back early. kAborted: the
  // round broke; kCancelled: `stop` while waiting for data.
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
  // Stop between two batches when the round is over or a rank has to leave.
  [[nodiscard]] Result<Sums> RunShare(Slice share, const comm::Communicator& communicator,
                                      const std::function<bool()>& leave, const std::stop_token& stop);
  [[nodiscard]] Result<Sums> RunInPipeline(comm::Communicator& communicator,
                                           const std::function<bool()>& leave, const std::stop_token& stop);
  [[nodiscard]] std::vector<Slice> Batches(Slice share) const;
  // The same, which Next then returns one after the other.
  [[nodiscard]] std::vector<Slice> Load(Slice share);
  [[nodiscard]] Result<data::Batch> Next(const std::stop_token& stop);

  const api::TrainingSpec& spec_;
  TrainingState& state_;
  const data::Dataset& test_;
  data::Loader loader_;
};

}  // namespace lockstep::train
