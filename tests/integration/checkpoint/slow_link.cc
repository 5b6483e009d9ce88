#include "tests/integration/checkpoint/slow_link.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"
#include "tests/support/s3_server.h"

namespace lockstep::testing {
namespace {

using Piece = std::array<char, 1 << 16>;

Fd ConnectLoopback(int port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* plain = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  return ::connect(socket.get(), plain, sizeof address) == 0 ? std::move(socket) : Fd();
}

bool SendAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

SlowLink::SlowLink(int server_port, int64_t bytes_per_second, std::function<void(int64_t)> sent)
    : server_port_(server_port),
      bytes_per_second_(bytes_per_second),
      sent_(std::move(sent)),
      socket_(BindLoopback(port_)) {
  LOCKSTEP_CHECK(::listen(socket_.get(), 64) == 0, "cannot listen");
  thread_ = std::jthread([this](const std::stop_token& stop) { Accept(stop); });
}

SlowLink::~SlowLink() {
  thread_.request_stop();
  ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the accept
  thread_.join();
  for (const Connection& connection : connections_) {
    ::shutdown(connection.client.get(), SHUT_RDWR);
    ::shutdown(connection.server.get(), SHUT_RDWR);
  }
}

void SlowLink::Accept(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Fd client(::accept(socket_.get(), nullptr, nullptr));
    if (!client.valid()) continue;
    Connection& connection = connections_.emplace_back();
    connection.client = std::move(client);
    connection.server = ConnectLoopback(server_port_);
    connection.upwards = std::jthread([this, &connection] { Upwards(connection); });
    connection.downwards = std::jthread([&connection] { Downwards(connection); });
  }
}

void SlowLink::Upwards(const Connection& connection) {
  Piece piece{};
  for (ssize_t got = 0; (got = ::read(connection.client.get(), piece.data(), piece.size())) > 0;) {
    const std::lock_guard lock(link_);
    sent_(got);
    // This sleep is the speed of the link; nothing is synchronised by it.
    std::this_thread::sleep_for(Seconds(static_cast<double>(got) / static_cast<double>(bytes_per_second_)));
    if (!SendAll(connection.server.get(), {piece.data(), static_cast<std::size_t>(got)})) break;
  }
  ::shutdown(connection.server.get(), SHUT_WR);
}

void SlowLink::Downwards(const Connection& connection) {
  Piece piece{};
  for (ssize_t got = 0; (got = ::read(connection.server.get(), piece.data(), piece.size())) > 0;) {
    if (!SendAll(connection.client.get(), {piece.data(), static_cast<std::size_t>(got)})) break;
  }
  ::shutdown(connection.client.get(), SHUT_WR);
}

}  // namespace lockstep::testing
