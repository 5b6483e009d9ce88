#pragma once
// A host and a port as one text: "name:80", or "[fd00::1]:80" for an IPv6 address, which has brackets there
// and in URLs. Pure.

#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::http {

// `host`: a name, an IPv4 address or an IPv6 address without brackets.
[[nodiscard]] std::string JoinHostPort(std::string_view host, int port);

struct HostPort {
  std::string host;  // without brackets; may be empty
  int port = 0;      // 0 to 65535
};
[[nodiscard]] Result<HostPort> SplitHostPort(std::string_view text);

// The host of a URL with or without a port, without brackets.
[[nodiscard]] std::string HostOfUrl(std::string_view url);

}  // namespace lockstep::http
