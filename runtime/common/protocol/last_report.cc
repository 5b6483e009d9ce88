#include "runtime/common/protocol/last_report.h"

#include "runtime/common/base/fields.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/strings.h"

namespace lockstep::protocol {
namespace {

constexpr std::size_t kMaxReason = 200;  // of a repair

}  // namespace

std::string EncodeLastReport(Heartbeat heartbeat) {
  heartbeat.ranks.clear();
  heartbeat.save_failed = {};
  heartbeat.store_unavailable = {};
  for (Repair& repair : heartbeat.repairs) {
    repair.reason = Truncate(repair.reason, kMaxReason);
    repair.failure.last_lines.clear();
  }
  while (true) {
    std::string text = DumpJson(MessageToJson(heartbeat));
    if (text.size() <= kMaxLastReport) return text;
    if (!heartbeat.damaged_checkpoints.empty()) {
      heartbeat.damaged_checkpoints.clear();
    } else if (!heartbeat.repairs.empty()) {
      heartbeat.repairs.erase(heartbeat.repairs.begin());
    } else {
      return "";
    }
  }
}

std::optional<Heartbeat> DecodeLastReport(const std::string& text) {
  if (!text.starts_with('{')) return std::nullopt;
  const auto json = ParseJson(text);
  if (!json.ok()) return std::nullopt;
  auto heartbeat = MessageFromJson<Heartbeat>(*json);
  if (!heartbeat.ok()) return std::nullopt;
  return std::move(heartbeat).value();
}

}  // namespace lockstep::protocol
