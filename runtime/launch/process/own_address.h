#pragma once
// Finds the address by which other machines reach this one.

#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

// The address from which this machine connects to `host`, a name or an address. Sends nothing. Fails if the
// name is unknown, or if a name resolves to this machine only (127.…, ::1). A literal 127.0.0.1 or ::1 is
// allowed: it simulates several machines on one.
[[nodiscard]] Result<std::string> OwnAddressTowards(const std::string& host);

// The interface that has `address`, for a program that would look for the name of this machine and find an
// address which only this machine reaches, as with Debian's /etc/hosts (127.0.1.1). No value: it would find
// another one, or none is needed, because `address` is such an address, too, or that of another machine. Waits
// for the answer of a name server if the name is not in /etc/hosts.
[[nodiscard]] std::optional<std::string> InterfaceInPlaceOfName(const std::string& address);

}  // namespace lockstep::launch
