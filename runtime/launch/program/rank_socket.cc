#include "runtime/launch/program/rank_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kNameBytes = 16;
constexpr int kBacklog = 8;
// The maximum per turn, so that a program that writes without end cannot prevent the end of this object.
constexpr std::size_t kMostReadPerTurn = 1 << 20;

Error SocketError(const char* operation) {
  return {ErrorCode::kInternal, std::string(operation) + ": " + std::strerror(errno)};
}

Result<Fd> ListenAt(const std::string& name) {
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return SocketError("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // after a NUL: the abstract namespace
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return SocketError("bind");
  if (::listen(listener.get(), kBacklog) != 0) return SocketError("listen");
  return listener;
}

// If that is a process of this user or root.
std::optional<pid_t> ProgramAt(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  if (peer.uid != ::geteuid() && peer.uid != 0) return std::nullopt;
  return peer.pid;
}

}  // namespace

Result<std::unique_ptr<RankSocket>> RankSocket::Listen(Callbacks callbacks) {
  std::string name = "lockstep-rank-" + RandomHex(kNameBytes);
  LOCKSTEP_TRY(Fd listener, ListenAt(name));
  Fd stopped(::eventfd(0, EFD_CLOEXEC));
  if (!stopped.valid()) return SocketError("eventfd");
  return std::unique_ptr<RankSocket>(
      new RankSocket(std::move(name), std::move(listener), std::move(stopped), std::move(callbacks)));
}

RankSocket::RankSocket(std::string name, Fd listener, Fd stopped, Callbacks callbacks)
    : name_(std::move(name)),
      listener_(std::move(listener)),
      stopped_(std::move(stopped)),
      callbacks_(std::move(callbacks)),
      thread_([this] { Serve(); }) {}

RankSocket::~RankSocket() {
  ::eventfd_write(stopped_.get(), 1);
  thread_.join();
}

void RankSocket::Send(const protocol::ToRank& message) {
  const std::string line = protocol::Encode(message) + "\n";
  {
    const MutexLock lock(mutex_);
    if (!connection_.valid()) return;
    const ssize_t sent = ::send(connection_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(line.size())) return;
    ::shutdown(connection_.get(), SHUT_RDWR);  // the thread reads the end
  }
  log::Warning("the program does not read from LOCKSTEP_RANK_SOCKET: its connection ends");
}

void RankSocket::Serve() {
  bool is_stopped = false;
  while (!is_stopped) {
    // poll ignores a descriptor of -1.
    std::array<pollfd, 3> polled = {pollfd{listener_.get(), POLLIN, 0}, pollfd{Connection(), POLLIN, 0},
                                    pollfd{stopped_.get(), POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    is_stopped = polled[2].revents != 0;  // what arrived before is still delivered
    Read();                               // the end of a connection comes before the next one
    Accept();
  }
  Read();  // from a connection that was accepted last
}

pid_t RankSocket::program() {
  const MutexLock lock(mutex_);
  return program_;
}

int RankSocket::Connection() {
  const MutexLock lock(mutex_);
  return connection_.get();
}

// One in each turn: the connection before it may have ended already, which only Read observes.
void RankSocket::Accept() {
  Fd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted.valid()) return;
  if (Connection() >= 0)
    return log::Warning("a second connection to LOCKSTEP_RANK_SOCKET was closed: one is open");
  const auto program = ProgramAt(accepted.get());
  if (!program.has_value())
    return log::Warning("a connection to LOCKSTEP_RANK_SOCKET was closed: it is of another user");
  const MutexLock lock(mutex_);
  connection_ = std::move(accepted);
  program_ = *program;
}

void RankSocket::Read() {
  const int connection = Connection();
  std::array<char, 16'384> buffer{};
  for (std::size_t taken = 0; connection >= 0 && taken < kMostReadPerTurn;) {
    const ssize_t got = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return EndConnection();
    taken += static_cast<std::size_t>(got);
    if (messages_.Take({buffer.data(), static_cast<std::size_t>(got)}, callbacks_.on_message)) continue;
    log::Error("a message of the program is too long: its connection ends",
               {{"longest_bytes", RankMessages::kLongestLine}});
    return EndConnection();
  }
}

void RankSocket::EndConnection() {
  {
    const MutexLock lock(mutex_);
    connection_.Reset();
    program_ = 0;
  }
  messages_ = {};
  callbacks_.on_end();
}

}  // namespace lockstep::launch
