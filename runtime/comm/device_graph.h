#pragma once
// Work of a device that is recorded once and then queued as a whole: a CUDA graph. The host, which otherwise
// launches each kernel, is then free, and the device does not wait for it.

#include <functional>

namespace lockstep::comm {

// The step thread's. LibTorch's exceptions pass through; a graph whose recording failed is of no use.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Calls `work` once. What it queues is recorded and not done: it must not wait for the device, nor seed its
  // generator.
  virtual void Record(const std::function<void()>& work) = 0;
  // Queues what was recorded: the same kernels on the same memory, with the random numbers that the device's
  // generator is to give next.
  virtual void Replay() = 0;
};

}  // namespace lockstep::comm
