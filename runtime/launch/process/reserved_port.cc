#include "runtime/launch/process/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace lockstep::launch {
namespace {

// Above common service ports, below Kubernetes' node ports and the kernel's ephemeral range.
constexpr int kFirstPort = 20'000;
constexpr int kLastPort = 29'999;
constexpr int kAttempts = 100;

// Binds both families if the kernel has IPv6. Returns an invalid descriptor if the port is taken.
Fd BoundTo(int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.valid()) {
    const int off = 0;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = number;
    const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return bound == 0 ? std::move(socket) : Fd();
  }
  socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = number;
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return bound == 0 ? std::move(socket) : Fd();
}

}  // namespace

Result<ReservedPort> ReservedPort::Reserve() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int port = ports(random);
    if (Fd socket = BoundTo(port); socket.valid()) return ReservedPort(std::move(socket), port);
  }
  return Error{ErrorCode::kInternal, std::string("no free port: ") + std::strerror(errno)};
}

}  // namespace lockstep::launch
