#include "runtime/comm/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace lockstep::comm {
namespace {

Error SystemError(const std::string& what) {
  return {ErrorCode::kUnavailable, what + ": " + std::strerror(errno)};
}

Result<Fd> ListenOn(const addrinfo& address) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  const int off = 0;
  // One socket for both families; if the kernel does not allow that, IPv6 alone still works.
  if (address.ai_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return SystemError("bind");
  // Listens already: peers that are faster than rank 0 are queued instead of being rejected and retrying.
  if (::listen(fd.get(), SOMAXCONN) != 0) return SystemError("listen");
  return fd;
}

Result<int> PortOf(const Fd& fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return SystemError("getsockname");
  const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return int{ntohs(port)};
}

}  // namespace

Result<Listener> Listener::Open(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(address.empty() ? nullptr : address.c_str(), "0", &hints, &found);
  if (rc != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "address to listen on \"" + address + "\": " + ::gai_strerror(rc)};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Result<Listener> last = Error{ErrorCode::kUnavailable, "no address to listen on"};
  // IPv6 first: on the wildcard address it serves both families.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family != family) continue;
      Result<Fd> fd = ListenOn(*entry);
      if (!fd.ok()) {
        last = fd.error();
        continue;
      }
      LOCKSTEP_TRY(const int port, PortOf(*fd));
      return Listener(std::move(*fd), port);
    }
  }
  return last;
}

}  // namespace lockstep::comm
