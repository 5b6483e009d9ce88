#pragma once
// By which of its addresses other machines reach this one.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

// The address from which this machine would speak to `host`, a name or an address. Sends nothing. Fails
// where the name is not known, and where a name means this machine alone (127.…, ::1); who writes 127.0.0.1 or ::1 plays
// several machines on one.
[[nodiscard]] Result<std::string> OwnAddressTowards(const std::string& host);

}  // namespace lockstep::launch
