#include "runtime/train/step/seed_generator.h"

#include <ATen/Context.h>

namespace lockstep::train {

void SeedGenerator(uint64_t seed, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace lockstep::train
