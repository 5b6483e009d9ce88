#pragma once
// Reads and writes whole small files. A concurrent reader sees the old or the new content, never a part. Any
// thread.

#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep {

// Whether an errno is temporary: the server of a mounted file system does not respond.
[[nodiscard]] bool MayPass(int error_number);
// kUnavailable for a temporary error.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path);
// Writes a temporary file in the same folder, syncs it and renames it.
[[nodiscard]] Result<void> WriteFile(const std::string& path, std::string_view content);
// An environment variable, or the fallback if it is unset or empty.
[[nodiscard]] std::string EnvOr(const char* name, std::string_view fallback);

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int Release();
  void Reset();

 private:
  int fd_ = -1;
};

}  // namespace lockstep
