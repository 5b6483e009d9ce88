#pragma once
// What the steps of a run are trained on: which samples, and how they look in their epoch. Immutable; any
// thread.

#include "runtime/common/api/training_spec.h"
#include "runtime/data/augmentation.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"

namespace lockstep::data {

// Places [begin, end) among the samples of a step.
struct Draw {
  int64_t step = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class TrainingSamples {
 public:
  // `dataset` outlives it. The error names the field that does not fit the data.
  [[nodiscard]] static Result<TrainingSamples> Make(const api::TrainingSpec& spec, const Dataset& dataset);

  [[nodiscard]] const SamplePlan& plan() const { return plan_; }
  // Getting those of a step takes less time than waking a thread for it.
  [[nodiscard]] bool are_quick() const { return are_quick_; }
  // The same bits for the same draw in every process, without the rows of corrupt records. Throws what the
  // data set throws.
  [[nodiscard]] Batch Get(const Draw& draw) const;

 private:
  TrainingSamples(const Dataset& dataset, const SamplePlan& plan, const Augmentation& augmentation,
                  bool are_quick)
      : dataset_(&dataset), plan_(plan), augmentation_(augmentation), are_quick_(are_quick) {}

  const Dataset* dataset_;
  SamplePlan plan_;
  Augmentation augmentation_;
  bool are_quick_;
};

}  // namespace lockstep::data
