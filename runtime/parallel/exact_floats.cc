#include "runtime/parallel/exact_floats.h"

#include <cmath>

namespace lockstep::parallel {

void SplitIntoFloats(std::span<const double> values, std::span<float> floats) {
  std::size_t next = 0;
  for (const double value : values) {
    double rest = value;
    for (std::size_t i = 0; i < kFloatsOfDouble; ++i) {
      const auto part = static_cast<float>(rest);
      floats[next++] = part;
      rest = std::isfinite(part) ? rest - static_cast<double>(part) : 0;  // infinity less itself is no number
    }
  }
}

void JoinFloats(std::span<const float> floats, std::span<double> values) {
  std::size_t next = 0;
  for (double& value : values) {
    value = 0;
    for (std::size_t i = 0; i < kFloatsOfDouble; ++i) value += static_cast<double>(floats[next++]);
  }
}

}  // namespace lockstep::parallel
