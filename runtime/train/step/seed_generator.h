#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace lockstep::train {

// Seeds LibTorch's default generator of the device. Safe from any thread.
void SeedGenerator(uint64_t seed, at::Device device);

}  // namespace lockstep::train
