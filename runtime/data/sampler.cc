#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/common/base/mix.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {
Permutation::Permutation(uint64_t key, int64_t size) : key_(Mix(key)), size_(static_cast<uint64_t>(size)) {
  LOCKSTEP_CHECK(size > 0, "a permutation needs at least one element");
  const auto bits = static_cast<uint32_t>(std::bit_width(size_ - 1));
  half_bits_ = std::max<uint32_t>(1, (bits + 1) / 2);
}

int64_t Permutation::At(int64_t position) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (Mix(key_ ^ (round << 56) ^ right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

ClassDraw::ClassDraw(std::span<const int64_t> labels, std::span<const double> weights)
    : samples_(weights.size()) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) samples_.at(static_cast<std::size_t>(labels[i])).push_back(static_cast<int64_t>(i));
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    LOCKSTEP_CHECK(weights[i] == 0 || !samples_[i].empty(), "a class with a weight and no sample");
    up_to_.push_back(sum += weights[i]);
  }
  LOCKSTEP_CHECK(sum > 0, "no class has a weight");
}

int64_t ClassDraw::At(uint64_t key, int64_t position) const {
  const uint64_t of_class = Mix(key ^ Mix(static_cast<uint64_t>(position)));
  // 53 random bits give a double in [0, 1).
  const double place = static_cast<double>(of_class >> 11) * 0x1p-53 * up_to_.back();
  const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), place);
  const std::vector<int64_t>& samples = samples_[static_cast<std::size_t>(found - up_to_.begin())];
  return samples[Mix(of_class) % samples.size()];
}

SamplePlan::SamplePlan(const SamplePlanOptions& options) : options_(options) {
  LOCKSTEP_CHECK(options.size > 0 && options.global_batch > 0, "an empty data set or batch");
  const int64_t whole = options.size / options.global_batch;
  const bool tail = options.size % options.global_batch != 0 && (!options.drop_last || whole == 0);
  steps_per_epoch_ = whole + (tail ? 1 : 0);
}

int64_t SamplePlan::CountOf(int64_t step) const {
  const int64_t begin = (step % steps_per_epoch_) * options_.global_batch;
  return std::min(options_.global_batch, options_.size - begin);
}

std::vector<int64_t> SamplePlan::Ids(int64_t step, int64_t begin, int64_t end) const {
  const int64_t first = (step % steps_per_epoch_) * options_.global_batch;
  const uint64_t key = options_.seed ^ Mix(static_cast<uint64_t>(EpochOf(step)) + 1);
  const Permutation order(key, options_.size);
  std::vector<int64_t> ids;
  ids.reserve(static_cast<std::size_t>(end - begin));
  for (int64_t position = first + begin; position < first + end; ++position) {
    if (options_.weighted != nullptr) {
      ids.push_back(options_.weighted->At(key, position));
    } else {
      ids.push_back(options_.shuffle ? order.At(position) : position);
    }
  }
  return ids;
}

}  // namespace lockstep::data
