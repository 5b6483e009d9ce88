#pragma once
// Which steps LOCKSTEP_PROFILE asks to be recorded. Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::api {

// By the number of steps that are done before; both are recorded.
struct ProfileWindow {
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const ProfileWindow&, const ProfileWindow&) = default;
};

// "100-104"; empty: none. At most 100 steps: a recording is held in memory.
[[nodiscard]] Result<std::optional<ProfileWindow>> ParseProfileWindow(const std::string& text);

// Of the trace of a rank, below the folder or store that it goes to.
[[nodiscard]] std::string TraceName(const ProfileWindow& window, int rank);

}  // namespace lockstep::api
