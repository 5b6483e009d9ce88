#pragma once
// The proxy settings of the environment, which cpprestsdk does not read. Pure.

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::http {

using Environment = std::function<std::string(const char* name)>;  // "" if the variable is not set

// The proxy's URL for a request to `url`, or "": HTTPS_PROXY or HTTP_PROXY by scheme, unless NO_PROXY names
// the host ("*", exact, a domain suffix, or addresses as 10.0.0.0/8) or the host is loopback. Lower-case names
// win, as with curl.
[[nodiscard]] std::string ProxyFor(std::string_view url, const Environment& environment);

}  // namespace lockstep::http
