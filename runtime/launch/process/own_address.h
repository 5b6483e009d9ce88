#pragma once
// Finds the address by which other machines reach this one.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

// The address from which this machine connects to `host`, a name or an address. Sends nothing. Fails if the
// name is unknown, or if a name resolves to this machine only (127.…, ::1). A literal 127.0.0.1 or ::1 is
// allowed: it simulates several machines on one.
[[nodiscard]] Result<std::string> OwnAddressTowards(const std::string& host);

}  // namespace lockstep::launch
