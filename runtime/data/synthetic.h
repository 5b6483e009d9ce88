#pragma once
// Samples generated from the seed, for tests and measurements: each class has a random centre, and a sample
// is its class's centre plus noise, so a small model learns them within a few steps.

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Datasets MakeSynthetic(const api::SyntheticSpec& spec, int64_t seed);

}  // namespace lockstep::data
