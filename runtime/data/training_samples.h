#pragma once
// The training samples of each step: which ones, with their augmentation. Immutable; any thread.

#include "runtime/common/api/training_spec.h"
#include "runtime/data/augmentation.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"

namespace lockstep::data {

// Positions [begin, end) among the samples of a step.
struct Draw {
  int64_t step = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class TrainingSamples {
 public:
  // `dataset` must outlive the object. The error names the field that does not fit the data.
  [[nodiscard]] static Result<TrainingSamples> Make(const api::TrainingSpec& spec, const Dataset& dataset);

  [[nodiscard]] const SamplePlan& plan() const { return plan_; }
  // Whether reading the samples of a step takes less time than waking a thread.
  [[nodiscard]] bool are_quick() const { return are_quick_; }
  // The same draw gives the same bits in every process, without the rows of corrupt records. Throws what the
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
