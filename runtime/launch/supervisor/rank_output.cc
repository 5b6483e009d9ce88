#include "runtime/launch/supervisor/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

namespace lockstep::launch {
namespace {

// The maximum per turn, because a child of a dead rank may write faster than this thread reads.
constexpr std::size_t kMostPerTurn = 1 << 20;

}  // namespace

Result<std::unique_ptr<RankOutput>> RankOutput::Start(Fd out, Fd err, int local_rank,
                                                      ProgramOutputSender* sender) {
  Fd finished(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!finished.valid()) return Error{ErrorCode::kInternal, std::string("eventfd: ") + std::strerror(errno)};
  for (const Fd* fd : {&out, &err}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<RankOutput>(
      new RankOutput(std::move(out), std::move(err), std::move(finished), local_rank, sender));
}

RankOutput::RankOutput(Fd out, Fd err, Fd finished, int local_rank, ProgramOutputSender* sender)
    : streams_{{std::move(out), stdout}, {std::move(err), stderr}},
      finished_(std::move(finished)),
      sender_(sender),
      place_{.local_rank = local_rank},
      reader_([this] { Read(); }) {}

void RankOutput::SetPlace(int64_t round, int rank) {
  const MutexLock lock(mutex_);
  place_.round = round;
  place_.rank = rank;
}

std::string RankOutput::Finish() {
  if (reader_.joinable()) {
    ::eventfd_write(finished_.get(), 1);
    reader_.join();
  }
  return last_lines_.Text();
}

std::string RankOutput::FinishProgram() {
  std::string lines = Finish();
  last_lines_ = {};
  eventfd_t count = 0;
  ::eventfd_read(finished_.get(), &count);
  reader_ = std::jthread([this] { Read(); });
  return lines;
}

void RankOutput::Read() {
  bool finished = false;
  while (!finished) {
    // A closed stream has descriptor -1, which poll ignores.
    std::array<pollfd, 3> polled = {pollfd{streams_[0].fd.get(), POLLIN, 0},
                                    pollfd{streams_[1].fd.get(), POLLIN, 0},
                                    pollfd{finished_.get(), POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    // Checked before the last read of the pipes, which contain what the dead process wrote.
    finished = polled[2].revents != 0;
    for (Stream& stream : streams_) TakeAll(stream);
  }
  for (Stream& stream : streams_) {
    if (auto rest = stream.cutter.Rest()) Pass(stream, {std::move(*rest)});
  }
}

void RankOutput::TakeAll(Stream& stream) {
  std::array<char, 16'384> buffer{};
  std::size_t taken = 0;
  while (stream.fd.valid() && taken < kMostPerTurn) {
    const ssize_t got = ::read(stream.fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    if (got == 0) return stream.fd.Reset();
    taken += static_cast<std::size_t>(got);
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    for (const OutputLine& line : stream.cutter.Add(bytes, std::chrono::steady_clock::now()))
      Pass(stream, line);
  }
}

void RankOutput::Pass(const Stream& stream, const OutputLine& line) {
  const bool is_error = stream.target == stderr;
  if (is_error && !line.is_overwritten) last_lines_.Add(line.text);
  RankPlace place;
  {
    const MutexLock lock(mutex_);
    place = place_;
  }
  const std::string labelled = Labelled(line.text, place) + "\n";
  // In one call: the lock of stdio keeps lines of several ranks and of our own log whole.
  std::fwrite(labelled.data(), 1, labelled.size(), stream.target);
  std::fflush(stream.target);
  // Before a rank's first round its program is not running.
  if (sender_ != nullptr && place.round > 0)
    sender_->Send(place.rank, is_error ? OutputStream::kError : OutputStream::kOutput, line.text);
}

}  // namespace lockstep::launch
