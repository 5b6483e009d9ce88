#include "runtime/launch/process/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "runtime/common/base/file.h"

namespace lockstep::launch {
namespace {

constexpr const char* kAnyPort = "9";  // no data is sent there

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), kAnyPort, &hints, &found);
  if (code != 0) return Error{ErrorCode::kUnavailable, "no address: " + std::string(::gai_strerror(code))};
  return Addresses(found, &::freeaddrinfo);
}

// The local address of a socket connected to `peer`.
Result<sockaddr_storage> SourceTowards(const addrinfo& peer) {
  const Fd socket(::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t size = sizeof source;
  if (!socket.valid() || ::connect(socket.get(), peer.ai_addr, peer.ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&source), &size) != 0) {
    return Error{ErrorCode::kUnavailable, std::strerror(errno)};
  }
  return source;
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return (ntohl(ipv4.s_addr) >> 24) == IN_LOOPBACKNET;
}

std::string TextOf(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const bytes =
      address.sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  ::inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return text.data();
}

// A link-local address must name its interface, which differs on each machine.
bool IsLinkLocal(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Uses IPv6 only if no IPv4 address works.
Result<std::string> AddressTowards(const std::string& host) {
  LOCKSTEP_TRY(const Addresses addresses, Resolve(host));
  const bool is_meant = host.starts_with("127.") || host == "localhost" || host == "::1";
  Error last{ErrorCode::kUnavailable, "no address"};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* peer = addresses.get(); peer != nullptr; peer = peer->ai_next) {
      if (peer->ai_family != family) continue;
      const auto found = SourceTowards(*peer);
      if (!found.ok()) {
        last = found.error();
        continue;
      }
      const auto& source = reinterpret_cast<const sockaddr&>(*found);
      if (!IsLinkLocal(source) && (!IsLoopback(source) || is_meant)) return TextOf(source);
      last = {ErrorCode::kInvalidArgument, TextOf(source) + ", which other machines cannot reach"};
    }
  }
  return last;
}

// As Gloo does, which takes a loopback address where the name is unknown.
bool OwnNameMeansLoopback() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return true;
  const auto addresses = Resolve(name.data());
  return !addresses.ok() || IsLoopback(*addresses->get()->ai_addr);
}

}  // namespace

Result<std::string> OwnAddressTowards(const std::string& host) {
  return AddressTowards(host).WithContext(host);
}

std::optional<std::string> InterfaceInPlaceOfName(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(first, &::freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const sockaddr* const own = each->ifa_addr;
    if (own == nullptr || (own->sa_family != AF_INET && own->sa_family != AF_INET6)) continue;
    if (IsLoopback(*own) || TextOf(*own) != address) continue;
    return OwnNameMeansLoopback() ? std::optional<std::string>(each->ifa_name) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
