#pragma once
// Which steps are recorded: set by LOCKSTEP_PROFILE before the training, or requested while it runs. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::api {

// On a job, set by users: each new value requests a profile of so many steps, as in "5" or "5 once more".
inline constexpr std::string_view kAnnotationProfile = "lockstep.dev/profile";

// First and last recorded step, numbered by the steps completed before.
struct ProfileWindow {
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const ProfileWindow&, const ProfileWindow&) = default;
};

// "100-104"; empty: none. At most 100 steps, because a recording is held in memory.
[[nodiscard]] Result<std::optional<ProfileWindow>> ParseProfileWindow(const std::string& text);

// Parses the value of kAnnotationProfile.
[[nodiscard]] Result<int> ParseProfileSteps(const std::string& text);

// The `steps` steps from `next` on in a training of `total` steps. If they would overlap `planned`, the steps
// after `planned`. Absent: no step is left.
[[nodiscard]] std::optional<ProfileWindow> WindowFrom(int64_t next, int steps, int64_t total,
                                                      const std::optional<ProfileWindow>& planned);

// Name of the trace of a rank, relative to the folder or store that receives it.
[[nodiscard]] std::string TraceName(const ProfileWindow& window, int rank);

}  // namespace lockstep::api
