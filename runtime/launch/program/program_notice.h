#pragma once
// What a program learns about its end before it gets SIGTERM: why, and how much time is left. It reads this in the file
// that LOCKSTEP_NOTICE_FILE names. Pure.

#include <optional>
#include <string>

#include "runtime/common/base/clock.h"

namespace lockstep::launch {

enum class NoticeReason {
  kNodeDeparts,  // a taint of the node or the cloud says so; SIGTERM follows
  kTermination,  // the pod or `lockstep run` got SIGTERM: an eviction, a drain, a preemption, a suspended job
  kRoundOver,    // the program starts again in the next round: another rank failed, or the job is resized
};

// The file while there is no notice.
inline constexpr const char* kNoNotice = "{}\n";

struct Notice {
  NoticeReason reason = NoticeReason::kTermination;
  std::optional<Seconds> left{};    // until the program is killed; absent: not known
  std::optional<WallTime> until{};  // the same, where others have set the time
  std::string detail{};             // for people; may be empty
};

// {"deadline": Unix seconds, "reason": "Termination", "secondsLeft": 26.0}, on one line.
[[nodiscard]] std::string NoticeText(const Notice& notice, WallTime now);

}  // namespace lockstep::launch
