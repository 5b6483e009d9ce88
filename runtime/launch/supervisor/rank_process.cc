#include "runtime/launch/supervisor/rank_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/launch/supervisor/rank_messages.h"

namespace lockstep::launch {
namespace {

void ReadUntilEnd(int fd, const RankProcess::Callbacks& callbacks) {
  RankMessages messages;
  std::array<char, 16384> buffer{};
  while (true) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (!messages.Take({buffer.data(), static_cast<std::size_t>(got)}, callbacks.on_message)) break;
  }
  callbacks.on_socket_end();
}

}  // namespace

Result<std::unique_ptr<RankProcess>> RankProcess::Start(std::vector<std::string> command, int local_rank,
                                                        Callbacks callbacks, ProgramOutputSender* sender) {
  LOCKSTEP_TRY(SocketPair sockets, MakeSocketPair());
  LOCKSTEP_TRY(Pipe out, MakePipe());
  LOCKSTEP_TRY(Pipe err, MakePipe());
  const int fd = sockets.theirs.get();
  LOCKSTEP_TRY(
      const pid_t pid,
      StartProcess(
          {.arguments = std::move(command),
           .environment = {std::string(protocol::env::kControlFd) + "=" + std::to_string(fd),
                           std::string(protocol::env::kLocalRank) + "=" + std::to_string(local_rank),
                           // Pods without a CPU limit share their node's processors. There, spinning OpenMP
                           // threads make a step take ten times as long. The variable is read before main.
                           "OMP_WAIT_POLICY=" + EnvOr("OMP_WAIT_POLICY", "PASSIVE")},
           .inherited_fd = fd,
           .stdout_fd = out.writing.get(),
           .stderr_fd = err.writing.get()}));
  auto output = RankOutput::Start(std::move(out.reading), std::move(err.reading), local_rank, sender);
  if (!output.ok()) {
    KillProcess(pid, SIGKILL);
    return output.error();
  }
  return std::unique_ptr<RankProcess>(
      new RankProcess(pid, std::move(*output), std::move(sockets.ours), std::move(callbacks)));
}

RankProcess::RankProcess(pid_t pid, std::unique_ptr<RankOutput> output, Fd socket, Callbacks callbacks)
    : pid_(pid),
      output_(std::move(output)),
      socket_(std::move(socket)),
      reader_([fd = socket_.get(), callbacks = std::move(callbacks)] { ReadUntilEnd(fd, callbacks); }) {}

RankProcess::~RankProcess() {
  KillProcess(pid_, SIGKILL);
  ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the reader, which is joined before the socket is closed
  reader_.join();
}

bool RankProcess::Send(const protocol::ToRank& message) {
  if (const auto* assignment = std::get_if<protocol::RankAssignment>(&message)) {
    output_->SetPlace(assignment->round, assignment->rank);
  }
  std::string line = protocol::Encode(message) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace lockstep::launch
