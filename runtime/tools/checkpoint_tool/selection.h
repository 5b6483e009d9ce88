#pragma once
// Which of the stored steps a command means, and whether one is sound. One thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/tools/checkpoint_tool/commands.h"

namespace lockstep::checkpoint_tool {

// kNotFound where there is no such folder.
[[nodiscard]] Result<checkpoint::StoredStep> FindStep(const Place& place,
                                                      const std::vector<checkpoint::StoredStep>& steps,
                                                      int64_t step);
// The one of this step, or the newest; kNotFound where it is no checkpoint.
[[nodiscard]] Result<checkpoint::StoredStep> FindCheckpoint(const Place& place, std::optional<int64_t> step);

// Reads all of it. What is damaged or missing, each by its name; empty: it is sound. An error is the store's.
[[nodiscard]] Result<std::vector<std::string>> FindDamage(const Place& place,
                                                          const checkpoint::StoredStep& stored);

// "there are no checkpoints below …".
[[nodiscard]] Error NoCheckpoints(const Place& place);

}  // namespace lockstep::checkpoint_tool
