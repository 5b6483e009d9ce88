#pragma once
// The bytes of a watch → events: one JSON document per line, split anywhere into chunks. Pure; one owner.

#include <functional>
#include <string>
#include <string_view>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark, kError };

struct WatchEvent {
  WatchEventType type = WatchEventType::kAdded;
  Json object;  // for kError: a metav1.Status
};

class WatchDecoder {
 public:
  explicit WatchDecoder(std::size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  // Calls `on_event` for each complete event. If it returns false, decoding ends and false is returned. An
  // unknown type, a line that is not JSON and a line above the size limit are errors, because the rest of the
  // stream cannot be trusted.
  [[nodiscard]] Result<bool> Feed(std::string_view chunk, const std::function<bool(WatchEvent)>& on_event);

 private:
  [[nodiscard]] Result<bool> TakeLine(std::string_view line, const std::function<bool(WatchEvent)>& on_event);

  std::size_t max_event_bytes_;
  std::string partial_;  // the beginning of an incomplete line
};

}  // namespace lockstep::kube
