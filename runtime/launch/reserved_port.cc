#include "runtime/launch/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace lockstep::launch {
namespace {

// Above what services listen on by habit; below Kubernetes' node ports and the kernel's own choice.
constexpr int kFirstPort = 20'000;
constexpr int kLastPort = 29'999;
constexpr int kAttempts = 100;

bool Bind(int socket, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

Result<ReservedPort> ReservedPort::Reserve() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int port = ports(random);
    if (socket.valid() && Bind(socket.get(), port)) return ReservedPort(std::move(socket), port);
  }
  return Error{ErrorCode::kInternal, std::string("no free port: ") + std::strerror(errno)};
}

}  // namespace lockstep::launch
