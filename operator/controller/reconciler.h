#pragma once
// What a controller calls for a key. Level-based: the key says which object, never what changed.

#include <chrono>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::controller {

struct Outcome {
  std::optional<std::chrono::milliseconds> requeue_after;
};

class Reconciler {
 public:
  virtual ~Reconciler() = default;
  // Called from several threads, never for one key twice at once. An error or an exception means: again, with back-off.
  [[nodiscard]] virtual Result<Outcome> Reconcile(const std::string& key) = 0;
};

}  // namespace lockstep::controller
