#pragma once
// The bytes of a watch → events: one JSON document per line, cut anywhere into chunks. Pure; one owner.

#include <functional>
#include <string>
#include <string_view>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark, kError };

struct WatchEvent {
  WatchEventType type = WatchEventType::kAdded;
  Json object;  // of kError: a metav1.Status
};

class WatchDecoder {
 public:
  explicit WatchDecoder(std::size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  // Hands each complete event to `on_event`; false from it is passed on and ends the decoding. An unknown
  // type, a line that is no JSON or one above the limit is an error: the stream can no longer be trusted.
  [[nodiscard]] Result<bool> Feed(std::string_view chunk, const std::function<bool(WatchEvent)>& on_event);

 private:
  [[nodiscard]] Result<bool> TakeLine(std::string_view line, const std::function<bool(WatchEvent)>& on_event);

  std::size_t max_event_bytes_;
  std::string partial_;  // the begin of a line whose end has not come yet
};

}  // namespace lockstep::kube
