#include "runtime/launch/own_address.h"

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

constexpr in_port_t kAnyPort = 9;  // nothing is sent there

Result<sockaddr_in> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0)
    return Error{ErrorCode::kUnavailable, "no IPv4 address: " + std::string(::gai_strerror(code))};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  address.sin_port = htons(kAnyPort);
  return address;
}

Result<std::string> AddressTowards(const std::string& host) {
  LOCKSTEP_TRY(sockaddr_in address, Resolve(host));
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.get(), raw, size) != 0 ||
      ::getsockname(socket.get(), raw, &size) != 0) {
    return Error{ErrorCode::kUnavailable, std::strerror(errno)};
  }
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  const bool is_meant = host.starts_with("127.") || host == "localhost";
  if ((ntohl(address.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET && !is_meant)
    return Error{ErrorCode::kInvalidArgument,
                 std::string(text.data()) + ", which other machines cannot reach"};
  return std::string(text.data());
}

}  // namespace

Result<std::string> OwnAddressTowards(const std::string& host) {
  return AddressTowards(host).WithContext(host);
}

}  // namespace lockstep::launch
