#pragma once
// Copies this program with everything it needs to run into one folder. In an image without Lockstep, with
// another C library or none, `ld.so --library-path FOLDER FOLDER/lockstep` starts it.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

inline constexpr const char* kCopiedLoader = "ld.so";
inline constexpr const char* kCopiedProgram = "lockstep";

// Copies the executable, the shared libraries that this process has loaded, and its dynamic loader. The
// folder must exist; files of the same names are replaced.
[[nodiscard]] Result<void> CopyRunningProgram(const std::string& folder);

}  // namespace lockstep::launch
