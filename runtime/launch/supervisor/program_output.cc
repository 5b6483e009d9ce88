#include "runtime/launch/supervisor/program_output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace lockstep::launch {
namespace {

// A message is a letter for the stream, the rank, a space, the line and a newline.
constexpr char kOutputLetter = 'O';
constexpr char kErrorLetter = 'E';

}  // namespace

void ProgramOutputSender::Send(int rank, OutputStream stream, std::string_view line) {
  std::string message(1, stream == OutputStream::kError ? kErrorLetter : kOutputLetter);
  message += std::to_string(rank) + " ";
  message += line;
  message += '\n';
  // Lines longer than PIPE_BUF are not written atomically, so lines of several ranks would mix.
  const MutexLock lock(mutex_);
  for (std::string_view rest = message; !rest.empty();) {
    const ssize_t written = ::write(pipe_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // `lockstep run` has ended, and this process ends with it
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

ProgramOutputPrinter::ProgramOutputPrinter(Fd pipe, bool with_prefix)
    : pipe_(std::move(pipe)), with_prefix_(with_prefix), reader_([this] { Read(); }) {}

void ProgramOutputPrinter::Read() {
  std::string pending;
  std::array<char, 16'384> buffer{};
  while (true) {
    const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    pending.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
      Print(std::string_view(pending).substr(begin, end - begin));
    pending.erase(0, begin);
  }
}

void ProgramOutputPrinter::Print(std::string_view message) const {
  const std::size_t space = message.find(' ');
  if (space == std::string_view::npos) return;
  std::string line;
  if (with_prefix_) line = "[rank " + std::string(message.substr(1, space - 1)) + "] ";
  line += message.substr(space + 1);
  line += '\n';
  std::FILE* const target = message.front() == kErrorLetter ? stderr : stdout;
  // In one call: the lock of stdio keeps the line whole.
  std::fwrite(line.data(), 1, line.size(), target);
  std::fflush(target);
}

}  // namespace lockstep::launch
