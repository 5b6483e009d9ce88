#pragma once
// Which steps are to be recorded, as LOCKSTEP_PROFILE says before the training or somebody while it runs.
// Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::api {

// On a job, set by people: a text that was not there before asks for a profile of so many steps, as in "5" or
// "5 once more".
inline constexpr std::string_view kAnnotationProfile = "lockstep.dev/profile";

// By the number of steps that are done before; both are recorded.
struct ProfileWindow {
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const ProfileWindow&, const ProfileWindow&) = default;
};

// "100-104"; empty: none. At most 100 steps: a recording is held in memory.
[[nodiscard]] Result<std::optional<ProfileWindow>> ParseProfileWindow(const std::string& text);

// Of that annotation.
[[nodiscard]] Result<int> ParseProfileSteps(const std::string& text);

// The `steps` steps from `next` on of a training of `total`; where they would meet those of `planned`, those
// that come after it. Absent: none is left.
[[nodiscard]] std::optional<ProfileWindow> WindowFrom(int64_t next, int steps, int64_t total,
                                                      const std::optional<ProfileWindow>& planned);

// Of the trace of a rank, below the folder or store that it goes to.
[[nodiscard]] std::string TraceName(const ProfileWindow& window, int rank);

}  // namespace lockstep::api
