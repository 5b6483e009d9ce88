#include "runtime/launch/program/parking.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/common/base/available_memory.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/resident_memory.h"
#include "runtime/common/base/strings.h"
#include "runtime/launch/process/process.h"

namespace lockstep::launch {
namespace {

// After the first step of a round, which may compile and tune.
constexpr Milliseconds kParkAfter{5'000};
constexpr Milliseconds kLookAfterMemory{1'000};
constexpr double kSafety = 2;
constexpr std::string_view kSkipped = "skipped ";
constexpr std::string_view kUnfit = "unfit ";

}  // namespace

bool FitsParked(double program_bytes, double available_bytes, int nproc) {
  return available_bytes >= kSafety * program_bytes * nproc;
}

bool IsTooShortForParked(double parked_bytes, double available_bytes, int nproc) {
  return available_bytes < parked_bytes * nproc;
}

std::optional<Parking::Parked> Parking::Take(const std::vector<std::string>& environment) {
  if (!parked_.has_value()) return std::nullopt;
  std::string message;
  for (const std::string& variable : environment) message.append(variable).push_back('\0');
  const ssize_t sent =
      ::send(parked_->socket.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(message.size())) {
    End();
    return std::nullopt;
  }
  log::Info("the program starts in the parked interpreter",
            {{"pid", parked_->pid}, {"has_imported_all", parked_->is_ready}});
  Parked taken{parked_->pid, std::move(parked_->page)};
  parked_.reset();  // closes the socket: the end of the message
  return taken;
}

void Parking::ProgramStarted(ProgramStart start) {
  program_ = std::move(start);
  first_step_.reset();
  has_tried_ = false;
}

void Parking::Observe(const witness::Observation& seen, SteadyTime now) {
  if (parked_.has_value()) {
    ReadWhatItSays(now);
    LookAfterMemory(now);
  }
  if (is_off_ || has_tried_ || seen.pid == 0) return;
  if (!first_step_.has_value()) first_step_ = now;
  if (now - *first_step_ < kParkAfter) return;
  has_tried_ = true;
  if (IsThePythonThatWasStarted(seen)) Start(now);
}

bool Parking::IsThePythonThatWasStarted(const witness::Observation& seen) const {
  const Result<std::string> command = ReadFile("/proc/" + std::to_string(program_.pid) + "/cmdline");
  std::string started;
  for (const std::string& argument : program_.arguments) started.append(argument).push_back('\0');
  return seen.pid == program_.pid && command.ok() && *command == started;
}

void Parking::Start(SteadyTime now) {
  const auto taken = ResidentBytes(program_.pid);
  const auto available = AvailableBytes();
  if (!taken.has_value() || !available.has_value()) return;
  if (!FitsParked(*taken, *available, nproc_)) {
    log::Info("not parked: too little memory",
              {{"program_bytes", *taken}, {"available_bytes", *available}, {"ranks", nproc_}});
    return;
  }
  if (const auto started = StartInterpreter(now); !started.ok()) GiveUp(started.error().message);
}

Result<void> Parking::StartInterpreter(SteadyTime now) {
  LOCKSTEP_TRY(SocketPair sockets, MakeSocketPair());
  const int fd = sockets.theirs.get();
  std::vector<std::string> environment = program_.environment;
  LOCKSTEP_TRY(witness::Page page, witness_.Prepare(environment));
  environment.push_back("LOCKSTEP_PARKED=" + std::to_string(fd));
  LOCKSTEP_TRY(const pid_t pid, StartProcess({.arguments = program_.arguments,
                                              .environment = std::move(environment),
                                              .inherited_fd = fd,
                                              .own_group = true}));
  parked_.emplace(
      Interpreter{.pid = pid, .page = std::move(page), .socket = std::move(sockets.ours), .started = now});
  return {};
}

void Parking::ReadWhatItSays(SteadyTime now) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::recv(parked_->socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got > 0) parked_->said.append(buffer.data(), static_cast<std::size_t>(got));
  while (parked_.has_value()) {
    const std::size_t end = parked_->said.find('\n');
    if (end == std::string::npos) return;
    const std::string line = parked_->said.substr(0, end);
    parked_->said.erase(0, end + 1);
    On(line, now);
  }
}

void Parking::On(const std::string& line, SteadyTime now) {
  if (line == "ready") {
    parked_->is_ready = true;
    log::Info("an interpreter is parked for the next round",
              {{"pid", parked_->pid},
               {"resident_bytes", ResidentBytes(parked_->pid).value_or(0)},
               {"seconds", Seconds(now - parked_->started).count()}});
  } else if (line.starts_with(kSkipped)) {
    log::Info("a module is not parked", {{"reason", line.substr(kSkipped.size())}});
  } else if (line.starts_with(kUnfit)) {
    GiveUp(line.substr(kUnfit.size()));
  }
}

void Parking::LookAfterMemory(SteadyTime now) {
  if (!parked_.has_value() || now < next_look_) return;
  next_look_ = now + kLookAfterMemory;
  const auto held = ResidentBytes(parked_->pid);
  const auto available = AvailableBytes();
  if (!held.has_value() || !available.has_value() || !IsTooShortForParked(*held, *available, nproc_)) return;
  log::Info("the parked interpreter is ended: memory is short",
            {{"resident_bytes", *held}, {"available_bytes", *available}});
  End();
}

bool Parking::HasEnded(const ChildExit& exit) {
  if (!parked_.has_value() || exit.pid != parked_->pid) return false;
  GiveUp("the interpreter ended with exit code " + std::to_string(exit.exit_code));
  return true;
}

void Parking::GiveUp(const std::string& reason) {
  End();
  is_off_ = true;
  log::Info("not parked", {{"reason", reason}});
}

void Parking::End() {
  if (!parked_.has_value()) return;
  KillGroup(parked_->pid, SIGKILL);
  parked_.reset();
}

}  // namespace lockstep::launch
