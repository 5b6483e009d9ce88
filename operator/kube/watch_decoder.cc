#include "operator/kube/watch_decoder.h"

#include <array>
#include <optional>
#include <utility>

#include "runtime/common/base/strings.h"

namespace lockstep::kube {
namespace {

std::optional<WatchEventType> TypeFromName(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK",
                                                             "ERROR"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames.at(i) == name) return static_cast<WatchEventType>(i);
  }
  return std::nullopt;
}

}  // namespace

Result<bool> WatchDecoder::Feed(std::string_view chunk, const std::function<bool(WatchEvent)>& on_event) {
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    const std::string_view piece = chunk.substr(0, end);
    if (partial_.size() + piece.size() > max_event_bytes_) {
      return Error{ErrorCode::kDataLoss, "watch event above " + std::to_string(max_event_bytes_) + " bytes"};
    }
    if (end == std::string_view::npos) {
      partial_ += piece;
      return true;
    }
    chunk.remove_prefix(end + 1);
    bool go_on = true;
    if (partial_.empty()) {
      LOCKSTEP_TRY(go_on, TakeLine(piece, on_event));
    } else {
      partial_ += piece;
      LOCKSTEP_TRY(go_on, TakeLine(std::exchange(partial_, {}), on_event));
    }
    if (!go_on) return false;
  }
  return true;
}

Result<bool> WatchDecoder::TakeLine(std::string_view line, const std::function<bool(WatchEvent)>& on_event) {
  if (line.empty()) return true;
  LOCKSTEP_TRY(Json json, ParseJson(line).WithContext("watch event"));
  const std::string name = StringAt(json, {"type"});
  const std::optional<WatchEventType> type = TypeFromName(name);
  const auto object = json.is_object() ? json.find("object") : json.end();
  if (!type || object == json.end() || !object->is_object()) {
    return Error{ErrorCode::kDataLoss, "watch event of type \"" + Truncate(name, 40) + "\" not understood"};
  }
  return on_event({*type, std::move(*object)});
}

}  // namespace lockstep::kube
