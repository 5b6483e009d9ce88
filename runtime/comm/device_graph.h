#pragma once
// Device work that is recorded once and then queued as a whole: a CUDA graph. The host does not launch each
// kernel, so it is free and the device does not wait for it.

#include <functional>

namespace lockstep::comm {

// Used by the step thread. LibTorch's exceptions pass through; a graph whose recording failed must not be
// used.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Calls `work` once. The work it queues is recorded and not executed: it must not wait for the device or
  // seed its generator.
  virtual void Record(const std::function<void()>& work) = 0;
  // Queues the recorded kernels on the same memory, with the next random numbers of the device's generator.
  virtual void Replay() = 0;
};

}  // namespace lockstep::comm
