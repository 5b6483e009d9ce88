#include "tests/integration/storms/attackers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <utility>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::testing {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using namespace std::chrono_literals;

constexpr int kTokenConnections = 20;
constexpr auto kSweep = 500ms;
constexpr auto kRetry = 50ms;

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

// The server says nothing on these: what can be read is the end.
bool IsClosed(const Fd& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != ENOTCONN);
}

}  // namespace

ConnectionFlood::ConnectionFlood(std::string address, int port, std::size_t count)
    : address_(std::move(address)),
      port_(port),
      thread_([this, count](const std::stop_token& stop) { Run(stop, count); }) {}

Fd ConnectionFlood::Open() const {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const sockaddr_in from = AddressOf(address_, 0);
  const sockaddr_in to = AddressOf("127.0.0.1", port_);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) != 0) return Fd();
  (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));  // goes on by itself
  return socket;
}

void ConnectionFlood::Run(const std::stop_token& stop, std::size_t count) {
  std::vector<Fd> sockets(count);
  do {
    for (Fd& socket : sockets) {
      if (stop.stop_requested()) return;
      if (socket.valid() && !IsClosed(socket)) continue;
      if (socket.valid()) ++closed_;
      socket = Open();
      if (socket.valid()) ++opened_;
    }
  } while (PauseFor(kSweep, stop));
}

TokenFlood::TokenFlood(std::string address, int port, int per_second)
    : address_(std::move(address)), port_(port) {
  for (int i = 0; i < kTokenConnections; ++i) {
    threads_.emplace_back(
        [this, i, per_second](const std::stop_token& stop) { Run(stop, i, per_second / kTokenConnections); });
  }
}

void TokenFlood::Run(const std::stop_token& stop, int number, int per_second) {
  do {
    try {
      SendOverOneConnection(stop, number, per_second);
    } catch (const boost::system::system_error&) {
      // Refused, or closed as one that is not trusted: the next one may live.
    }
  } while (PauseFor(kRetry, stop));
}

void TokenFlood::SendOverOneConnection(const std::stop_token& stop, int number, int per_second) {
  asio::io_context io;
  asio::ssl::context tls(asio::ssl::context::tls_client);
  asio::ssl::stream<Tcp::socket> stream(io, tls);
  stream.next_layer().open(Tcp::v4());
  stream.next_layer().bind({asio::ip::make_address(address_), 0});
  stream.next_layer().connect({asio::ip::address_v4::loopback(), static_cast<unsigned short>(port_)});
  stream.handshake(asio::ssl::stream_base::client);
  const protocol::Heartbeat beat{.job = {"storm", "job-0", "job-0-uid"},
                                 .member = {.pod = "nobody", .slot = 0}};
  beast::http::request<beast::http::string_body> request(beast::http::verb::post, "/v1/heartbeat", 11);
  request.set(beast::http::field::host, "localhost");
  request.body() = DumpJson(MessageToJson(beat));
  request.prepare_payload();
  beast::flat_buffer buffer;
  const std::string prefix = "Bearer bad-" + std::to_string(number) + "-";
  while (PauseFor(Milliseconds(1'000 / per_second), stop)) {
    const std::size_t sent = unauthorized_ + unavailable_ + others_;
    request.set(beast::http::field::authorization, prefix + std::to_string(sent));
    beast::http::write(stream, request);
    beast::http::response<beast::http::string_body> response;
    beast::http::read(stream, buffer, response);
    ++(response.result_int() == 401 ? unauthorized_ : response.result_int() == 503 ? unavailable_ : others_);
  }
}

}  // namespace lockstep::testing
