#include "runtime/launch/program/program_notice.h"

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
  if (notice.until.has_value()) {
    json["deadline"] = Seconds(notice.until->time_since_epoch()).count();
    json["secondsLeft"] = Seconds(*notice.until - now).count();
  } else if (notice.left.has_value()) {
    json["deadline"] = Seconds(now.time_since_epoch()).count() + notice.left->count();
    json["secondsLeft"] = notice.left->count();
  }
  if (!notice.detail.empty()) json["detail"] = notice.detail;
  return DumpJson(json) + "\n";
}

}  // namespace lockstep::launch
