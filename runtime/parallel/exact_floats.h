#pragma once
// Doubles that travel as floats: each as three that add up to it. A sum of floats over ranks keeps them exact
// where at most one rank's is not zero, and where all are whole numbers with a sum of at most kExactFloat.
// Beyond float32's range they become infinite.

#include <cstddef>
#include <span>

namespace lockstep::parallel {

inline constexpr std::size_t kFloatsOfDouble = 3;
inline constexpr double kExactFloat = 1 << 24;

// `floats` has kFloatsOfDouble places for each.
void SplitIntoFloats(std::span<const double> values, std::span<float> floats);
void JoinFloats(std::span<const float> floats, std::span<double> values);

}  // namespace lockstep::parallel
