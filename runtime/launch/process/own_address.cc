#include "runtime/launch/process/own_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
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

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return (ntohl(ipv4.s_addr) >> 24) == IN_LOOPBACKNET;
}

std::string TextOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const bytes =
      address.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  ::inet_ntop(address.ss_family, bytes, text.data(), text.size());
  return text.data();
}

// A link-local address must name its interface, which differs on each machine.
bool IsLinkLocal(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 &&
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
      const auto source = SourceTowards(*peer);
      if (!source.ok()) {
        last = source.error();
      } else if (IsLinkLocal(*source) || (IsLoopback(*source) && !is_meant)) {
        last = {ErrorCode::kInvalidArgument, TextOf(*source) + ", which other machines cannot reach"};
      } else {
        return TextOf(*source);
      }
    }
  }
  return last;
}

}  // namespace

Result<std::string> OwnAddressTowards(const std::string& host) {
  return AddressTowards(host).WithContext(host);
}

}  // namespace lockstep::launch
