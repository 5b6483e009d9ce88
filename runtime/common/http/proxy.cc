#include "runtime/common/http/proxy.h"

#include <vector>

#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"

namespace lockstep::http {
namespace {

bool Covers(std::string_view entry, std::string_view host) {
  while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
  while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
  if (entry == "*" || entry == host) return true;
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
