#pragma once
// Whole small files: read, and write so that a reader sees the old or the new content, never a part. Any
// thread.

#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep {

// Whether an error of the system may pass by itself: the server of a mounted file system is away.
[[nodiscard]] bool MayPass(int error_number);
// kUnavailable where the error may pass.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path);
// Writes beside the target, syncs, renames.
[[nodiscard]] Result<void> WriteFile(const std::string& path, std::string_view content);
// An environment variable, or the fallback where it is unset or empty.
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
