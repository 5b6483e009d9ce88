#include "runtime/checkpoint/save.h"

#include <algorithm>

namespace lockstep::checkpoint {

// Rank r of n writes the tensors whose middle byte falls into the r-th n-th of all bytes: contiguous,
// near-equal shares.
std::vector<int> DivideTensors(const std::vector<NamedTensor>& tensors, int world) {
  double total = 0;
  for (const NamedTensor& named : tensors) total += static_cast<double>(named.tensor.nbytes());
  std::vector<int> writers;
  double before = 0;
  for (const NamedTensor& named : tensors) {
    const auto bytes = static_cast<double>(named.tensor.nbytes());
    const double middle = total > 0 ? (before + bytes / 2) / total : 0;
    writers.push_back(std::min(world - 1, static_cast<int>(middle * world)));
    before += bytes;
  }
  return writers;
}

}  // namespace lockstep::checkpoint
