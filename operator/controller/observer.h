#pragma once
// Receives what the controller does, for metrics. The controller calls it from its threads; it must not
// block.

#include <chrono>
#include <string_view>

namespace lockstep::controller {

enum class ReconcileResult { kSuccess, kRequeueAfter, kError };

class ControllerObserver {
 public:
  virtual ~ControllerObserver() = default;
  virtual void OnAdded() = 0;
  virtual void OnRetry() = 0;
  virtual void OnStarted(std::chrono::duration<double> waited) = 0;
  virtual void OnFinished(ReconcileResult result, std::chrono::duration<double> worked) = 0;
};

}  // namespace lockstep::controller
