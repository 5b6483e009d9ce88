#pragma once
// The memory that the ranks of a job need for the state of the training, as `lockstep memory` shows it. Plain
// values.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

// Of one rank, in bytes, by arithmetic from the shapes of the model's tensors. Not in it: activations,
// batches, and buffers whose size does not depend on the model.
struct StateMemory {
  int64_t parameters = 0;  // and buffers
  int64_t gradients = 0;
  int64_t optimizer = 0;  // moments and averages of the weights
  int64_t undo = 0;       // what is kept until a step, or a window of steps, is complete
  int64_t gathered = 0;   // for a moment: layers in use, gradients that are sent and received
  int64_t host = 0;       // in host memory: copies, or the state itself

  // On the device of the state.
  [[nodiscard]] int64_t total() const { return parameters + gradients + optimizer + undo + gathered; }
};

struct StateMemoryOfSize {
  std::string strategy;
  int ranks = 1;
  StateMemory memory;  // of the rank that needs most
};

struct StrategyLeftOut {
  std::string strategy;
  std::string reason;
};

struct StateMemoryReport {
  int64_t trained_parameters = 0;         // elements
  int64_t other_elements = 0;             // of parameters that are not trained, and of buffers
  std::vector<StateMemoryOfSize> sizes;   // that of the job first
  std::vector<StrategyLeftOut> left_out;  // the job cannot train with these
};

}  // namespace lockstep::train
