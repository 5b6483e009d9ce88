#pragma once
// This program with everything it needs to run, in one folder: in an image that knows nothing of it, with
// another C library or none, `ld.so --library-path FOLDER FOLDER/lockstep` starts it.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

inline constexpr const char* kCopiedLoader = "ld.so";
inline constexpr const char* kCopiedProgram = "lockstep";

// The executable, the shared libraries that this process has loaded, and its dynamic loader. The folder must
// exist; what lies there under the same names is replaced.
[[nodiscard]] Result<void> CopyRunningProgram(const std::string& folder);

}  // namespace lockstep::launch
