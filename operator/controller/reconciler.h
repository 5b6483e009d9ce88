#pragma once
// What a controller calls for a key. It is level-based: the key names the object, not the change.

#include <chrono>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::controller {

// The order in which the queue returns keys.
enum class Priority { kNormal, kLow };

struct Outcome {
  std::optional<std::chrono::milliseconds> requeue_after;
};

class Reconciler {
 public:
  virtual ~Reconciler() = default;
  // Called from several threads, but never for the same key at the same time. After an error or an exception
  // the controller calls it again, with back-off.
  [[nodiscard]] virtual Result<Outcome> Reconcile(const std::string& key) = 0;
  // Called each time the key is queued, from any thread: it must be cheap.
  [[nodiscard]] virtual Priority PriorityOf(const std::string& key) const = 0;
};

}  // namespace lockstep::controller
