#include "runtime/launch/program_notice.h"

#include "runtime/common/base/json.h"

namespace lockstep::launch {
namespace {

const char* NameOf(NoticeReason reason) {
  switch (reason) {
    case NoticeReason::kNodeDeparts: return "NodeDeparts";
    case NoticeReason::kTermination: return "Termination";
    case NoticeReason::kRoundOver: return "RoundOver";
  }
  return "";
}

}  // namespace

std::string NoticeText(const Notice& notice, WallTime now) {
  Json json = {{"reason", NameOf(notice.reason)}};
  const std::optional<Seconds> left = notice.until ? *notice.until - now : notice.left;
  if (left.has_value()) {
    json["deadline"] = Seconds(now.time_since_epoch()).count() + left->count();
    json["secondsLeft"] = left->count();
  }
  if (!notice.detail.empty()) json["detail"] = notice.detail;
  return DumpJson(json) + "\n";
}

}  // namespace lockstep::launch
