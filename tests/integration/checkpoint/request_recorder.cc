#include "tests/integration/checkpoint/request_recorder.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/common/base/result.h"
#include "tests/support/s3_server.h"

namespace lockstep::testing {

RequestRecorder::RequestRecorder() : socket_(BindLoopback(port_)) {
  LOCKSTEP_CHECK(::listen(socket_.get(), 64) == 0, "cannot listen");
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Fd connection(::accept(socket_.get(), nullptr, nullptr));
      if (connection.valid()) Serve(connection.get());
    }
  });
}

RequestRecorder::~RequestRecorder() {
  thread_.request_stop();
  ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the accept
}

std::vector<std::string> RequestRecorder::UploadHeads() {
  const std::lock_guard lock(mutex_);
  return heads_;
}

void RequestRecorder::Serve(int connection) {
  std::string text;
  std::size_t end = std::string::npos;
  std::array<char, 4096> piece{};
  while ((end = text.find("\r\n\r\n")) == std::string::npos) {
    const ssize_t got = ::read(connection, piece.data(), piece.size());
    if (got <= 0) return;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  std::string head = text.substr(0, end);
  std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::tolower(c); });
  if (head.starts_with("put")) {
    const std::lock_guard lock(mutex_);
    heads_.push_back(head);
  }
  constexpr std::string_view kAnswer =
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"0\"\r\nConnection: close\r\n\r\n";
  (void)::send(connection, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
  ::shutdown(connection, SHUT_WR);
  while (::read(connection, piece.data(), piece.size()) > 0) continue;  // the body, until the client closes
}

}  // namespace lockstep::testing
