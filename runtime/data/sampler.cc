#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/common/base/result.h"

namespace lockstep::data {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): a full-avalanche mix of 64 bits.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

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
  const Permutation order(options_.seed ^ Mix(static_cast<uint64_t>(EpochOf(step)) + 1), options_.size);
  std::vector<int64_t> ids;
  ids.reserve(static_cast<std::size_t>(end - begin));
  for (int64_t place = begin; place < end; ++place) {
    ids.push_back(options_.shuffle ? order.At(first + place) : first + place);
  }
  return ids;
}

}  // namespace lockstep::data
