#pragma once
// What the ranks that hold parts of a divided state know about the whole, and how they report it to each other
// in a new round. A step of such a state ends with one sum over all ranks. A rank that does not learn its
// result keeps the gradients: another rank reports the result in the next round, and both then make the step.
// Pure.

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/train/state/early_stop.h"
#include "runtime/train/state/version.h"

namespace lockstep::train {

// The result of the sum at the end of a step, equal on all ranks.
struct StepEnd {
  double count = 0;    // samples
  double loss = 0;     // sum over the samples
  double squares = 0;  // of the gradient, which is also a sum over samples, and scaled
};

struct StepVerdict {
  double gradient_norm = 0;  // of the mean gradient, before clipping
  bool applied = true;       // false: not finite
};

// With the factor by which the loss was multiplied.
[[nodiscard]] StepVerdict VerdictOf(const StepEnd& end, double loss_scale);

// Facts about the state after a step that are equal on all ranks.
struct StepFacts {
  Version version;
  EvaluationRecord evaluations;
  double loss_scale = 1;
  int64_t good_steps = 0;
  StepEnd end;  // of the step that made the version
};

// Numbers that ranks exchange, written and read in the same order.
class Numbers {
 public:
  explicit Numbers(std::vector<int64_t> row = {}) : row_(std::move(row)) {}
  void Put(int64_t number) { row_.push_back(number); }
  void Put(double number) { row_.push_back(std::bit_cast<int64_t>(number)); }
  void Put(const Version& version);
  void Put(const StepFacts& facts);
  int64_t Take() { return row_.at(next_++); }
  double TakeReal() { return std::bit_cast<double>(Take()); }
  Version TakeVersion();
  StepFacts TakeFacts();
  [[nodiscard]] const std::vector<int64_t>& row() const { return row_; }

 private:
  std::vector<int64_t> row_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::train
