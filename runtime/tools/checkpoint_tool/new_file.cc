#include "runtime/tools/checkpoint_tool/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::checkpoint_tool {
namespace {

Error Bad(const std::string& path, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "FILE: " + path + ": " + problem + "; name a file that you may write"};
}

// pread or pwrite of all numbers.
template <typename Call>
Result<void> Transfer(Call call, const Fd& fd, const std::string& path, std::vector<float>& numbers,
                      int64_t position) {
  auto* const bytes = reinterpret_cast<char*>(numbers.data());
  const std::size_t size = numbers.size() * sizeof(float);
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = call(fd.get(), bytes + done, size - done, position + static_cast<off_t>(done));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return Bad(path, moved < 0 ? std::strerror(errno) : "was changed by another program");
    done += static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

Result<NewFile> NewFile::Make(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Bad(path, "is a folder");
  std::string temporary = path + ".part-" + RandomHex(4);
  Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return Bad(path, std::strerror(errno));
  return NewFile(path, std::move(temporary), std::move(fd));
}

NewFile::NewFile(std::string path, std::string temporary, Fd fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> NewFile::Append(std::string_view piece) {
  while (!piece.empty()) {
    const ssize_t written = ::write(fd_.get(), piece.data(), piece.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Bad(path_, std::strerror(errno));
    piece.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> NewFile::AddFloats(int64_t position, std::string_view numbers) {
  std::vector<float> sums(numbers.size() / sizeof(float));
  std::vector<float> added(sums.size());
  std::memcpy(added.data(), numbers.data(), added.size() * sizeof(float));
  LOCKSTEP_TRY(Transfer(::pread, fd_, path_, sums, position));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
  return Transfer(::pwrite, fd_, path_, sums, position);
}

Result<void> NewFile::Keep() {
  if (::fsync(fd_.get()) != 0) return Bad(path_, std::strerror(errno));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Bad(path_, std::strerror(errno));
  temporary_.clear();
  return {};
}

}  // namespace lockstep::checkpoint_tool
