#include "runtime/common/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

Error FromErrno(const std::string& path, std::string_view operation) {
  const int number = errno;
  const ErrorCode code = number == ENOENT   ? ErrorCode::kNotFound
                         : number == EACCES ? ErrorCode::kForbidden
                         : MayPass(number)  ? ErrorCode::kUnavailable
                                            : ErrorCode::kInternal;
  return {code, std::string(operation) + " " + path + ": " + std::strerror(number)};
}

bool WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

bool MayPass(int error_number) {
  static constexpr std::array kUnavailable = {EIO,          ESTALE,     ETIMEDOUT, ENOTCONN,     ECONNABORTED,
                                              ECONNREFUSED, ECONNRESET, ENETDOWN,  EHOSTUNREACH, ENETUNREACH,
                                              EHOSTDOWN,    ESHUTDOWN,  EREMOTEIO};
  return std::find(kUnavailable.begin(), kUnavailable.end(), error_number) != kUnavailable.end();
}

Result<std::string> ReadFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FromErrno(path, "reading");
  std::string content;
  std::array<char, 1 << 16> piece;
  while (true) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(path, "reading");
    if (got == 0) return content;
    content.append(piece.data(), static_cast<std::size_t>(got));
  }
}

Result<void> WriteFile(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return FromErrno(temporary, "creating");
  if (!WriteAll(fd.get(), content) || ::fsync(fd.get()) != 0) {
    const Error error = FromErrno(temporary, "writing");
    ::unlink(temporary.c_str());
    return error;
  }
  fd.Reset();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = FromErrno(path, "renaming to");
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

std::string EnvOr(const char* name, std::string_view fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::string(fallback);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = other.Release();
  }
  return *this;
}

int Fd::Release() { return std::exchange(fd_, -1); }

void Fd::Reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace lockstep
