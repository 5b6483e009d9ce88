#pragma once
// Samples made from the seed, for tests and measurements: each class has a random centre, a sample is its
// class's centre plus noise, so a small model learns it within a few steps.

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Datasets MakeSynthetic(const api::SyntheticSpec& spec, int64_t seed);

}  // namespace lockstep::data
