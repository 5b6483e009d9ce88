#pragma once
// `lockstep memory`: the memory that the ranks of a job need for the state of the training, for people or as
// JSON.

#include <string>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/train/memory_report.h"

namespace lockstep {

// What `lockstep memory` calls lockstep-rank with: this word, "text" or "json", and the numbers of ranks. The
// configuration is that of a pod (protocol/environment.h).
inline constexpr const char* kPrintMemory = "memory";

// Prints on standard output, and what is wrong on standard error. Returns the exit code.
[[nodiscard]] int PrintMemory(const api::TrainingSpec& training, const train::PodShape& pod,
                              const std::vector<std::string>& arguments);

}  // namespace lockstep
