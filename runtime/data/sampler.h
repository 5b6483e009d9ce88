#pragma once
// Which samples a step uses, as a pure function of (seed, epoch, position), so nothing has to be saved or
// agreed on. In an epoch every sample is used exactly once, in any world and across any number of restarts.
//
// The order of an epoch is a keyed permutation of [0, size): a four-round Feistel network over the next even
// number of bits, repeated until the result is inside the range (cycle walking; Black and Rogaway, "Ciphers
// with arbitrary finite domains", 2002). O(1) memory, random access. Pure; any thread.
//
// Weighted: an epoch draws as many samples as the data set has, with replacement, so that each class appears
// according to its weight. This is also a function of the position alone.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::data {

class Permutation {
 public:
  Permutation(uint64_t key, int64_t size);
  // The value at `position`; both are in [0, size).
  [[nodiscard]] int64_t At(int64_t position) const;

 private:
  uint64_t key_;
  uint64_t size_;
  uint32_t half_bits_;
};

class ClassDraw {
 public:
  // labels[i] is the class of sample i, in [0, weights.size()), or -1: never drawn. Weights need not sum to
  // 1; a class with a positive weight must have a sample.
  ClassDraw(std::span<const int64_t> labels, std::span<const double> weights);
  [[nodiscard]] int64_t At(uint64_t key, int64_t position) const;

 private:
  std::vector<std::vector<int64_t>> samples_;  // of each class
  std::vector<double> up_to_;                  // cumulative weights, including this class
};

struct SamplePlanOptions {
  int64_t size = 0;  // of the data set
  int64_t global_batch = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;                       // leave out the samples that do not fill a global batch
  std::shared_ptr<const ClassDraw> weighted{};  // absent: each sample once per epoch
};

// The steps of a run: step s (from 0) uses positions [begin, begin + count) of epoch s / steps_per_epoch. The
// last step of an epoch is smaller if the batch does not divide the data set, unless drop_last is set.
class SamplePlan {
 public:
  explicit SamplePlan(const SamplePlanOptions& options);

  [[nodiscard]] int64_t steps_per_epoch() const { return steps_per_epoch_; }
  [[nodiscard]] int64_t EpochOf(int64_t step) const { return step / steps_per_epoch_; }
  // Number of samples of the step over all ranks.
  [[nodiscard]] int64_t CountOf(int64_t step) const;
  // The ids at positions [begin, end) of the step's samples, 0 <= begin <= end <= CountOf(step).
  [[nodiscard]] std::vector<int64_t> Ids(int64_t step, int64_t begin, int64_t end) const;

 private:
  SamplePlanOptions options_;
  int64_t steps_per_epoch_;
};

}  // namespace lockstep::data
