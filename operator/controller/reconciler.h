#pragma once
// What a controller calls for a key. Level-based: the key says which object, never what changed.

#include <chrono>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::controller {

// Which keys the queue hands out first.
enum class Priority { kNormal, kLow };

struct Outcome {
  std::optional<std::chrono::milliseconds> requeue_after;
};

class Reconciler {
 public:
  virtual ~Reconciler() = default;
  // Called from several threads, never for one key twice at once. An error or an exception means: again, with back-off.
  [[nodiscard]] virtual Result<Outcome> Reconcile(const std::string& key) = 0;
  // Asked whenever the key is queued, from any thread: it must be cheap.
  [[nodiscard]] virtual Priority PriorityOf(const std::string& key) const = 0;
};

}  // namespace lockstep::controller
