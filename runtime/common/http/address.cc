#include "runtime/common/http/address.h"

#include <charconv>

namespace lockstep::http {

std::string JoinHostPort(std::string_view host, int port) {
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  std::string text = is_ipv6 ? "[" : "";
  text += host;
  return text + (is_ipv6 ? "]:" : ":") + std::to_string(port);
}

Result<HostPort> SplitHostPort(std::string_view text) {
  const Error bad{ErrorCode::kInvalidArgument, "\"" + std::string(text) +
                                                   "\" is not an address such as :8080, 127.0.0.1:8080 or "
                                                   "[::1]:8080 (an IPv6 address needs brackets)"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos) return bad;
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return bad;
  }
  int port = -1;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port < 0 || port > 65'535) return bad;
  return HostPort{std::string(host), port};
}

std::string HostOfUrl(std::string_view url) {
  const std::size_t scheme = url.find("://");
  std::string_view rest = scheme == std::string_view::npos ? url : url.substr(scheme + 3);
  rest = rest.substr(0, rest.find('/'));
  if (rest.starts_with('[')) return std::string(rest.substr(1, rest.find(']') - 1));
  return std::string(rest.substr(0, rest.find(':')));
}

}  // namespace lockstep::http
