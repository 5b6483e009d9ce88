#include "runtime/common/http/proxy.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <vector>

#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"

namespace lockstep::http {
namespace {

namespace ip = boost::asio::ip;

// Whether an address is in a network such as 10.0.0.0/8 or fd00::/8.
bool IsWithin(const std::string& network, const std::string& host) {
  boost::system::error_code bad;
  const ip::address address = ip::make_address(host, bad);
  if (bad) return false;
  if (address.is_v4()) {
    const ip::network_v4 all = ip::make_network_v4(network, bad);
    return !bad && ip::network_v4(address.to_v4(), all.prefix_length()).network() == all.network();
  }
  const ip::network_v6 all = ip::make_network_v6(network, bad);
  return !bad && ip::network_v6(address.to_v6(), all.prefix_length()).network() == all.network();
}

bool Covers(std::string_view entry, std::string_view host) {
  while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
  while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
  if (entry == "*" || entry == host) return true;
  if (entry.find('/') != std::string_view::npos) return IsWithin(std::string(entry), std::string(host));
  if (!entry.empty() && entry.front() == '.') entry.remove_prefix(1);
  return !entry.empty() && host.size() > entry.size() && host.ends_with(entry) &&
         host[host.size() - entry.size() - 1] == '.';
}

std::string FirstSet(const Environment& environment, const char* lower, const char* upper) {
  const std::string value = environment(lower);
  return value.empty() ? environment(upper) : value;
}

}  // namespace

std::string ProxyFor(std::string_view url, const Environment& environment) {
  const std::string host = HostOfUrl(url);
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return "";
  for (const std::string& entry : Split(FirstSet(environment, "no_proxy", "NO_PROXY"), ',')) {
    if (Covers(entry, host)) return "";
  }
  return url.starts_with("https:") ? FirstSet(environment, "https_proxy", "HTTPS_PROXY")
                                   : FirstSet(environment, "http_proxy", "HTTP_PROXY");
}

}  // namespace lockstep::http
