#include "runtime/common/protocol/control_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "runtime/common/base/log.h"

namespace lockstep::protocol {

ControlLink::~ControlLink() {
  if (!reader_.joinable()) return;
  reader_.request_stop();
  ::shutdown(socket_.get(), SHUT_RD);
}

void ControlLink::Start(Callbacks callbacks) {
  reader_ = std::jthread(
      [this, callbacks = std::move(callbacks)](const std::stop_token& stop) { Read(stop, callbacks); });
}

void ControlLink::Read(const std::stop_token& stop, const Callbacks& callbacks) {
  std::string pending;
  std::array<char, 4096> bytes{};
  while (true) {
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    pending.append(bytes.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      auto message = DecodeToRank(pending.substr(begin, end - begin));
      if (message.ok()) {
        callbacks.on_message(std::move(message).value());
      } else {
        log::Error("unreadable message from the supervisor", {{"error", message.error().message}});
      }
    }
    pending.erase(0, begin);
  }
  if (!stop.stop_requested()) callbacks.on_end();
}

void ControlLink::Send(const FromRank& message) {
  const std::string line = Encode(message) + "\n";
  const MutexLock lock(send_mutex_);
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

}  // namespace lockstep::protocol
