#include "runtime/launch/process/memory_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace lockstep::launch {
namespace {

constexpr double kBytesOfBlock = 512;  // of st_blocks, stat(2)

}  // namespace

double MemoryFileBytes(pid_t process, std::string_view name) {
  const std::string link = "/memfd:" + std::string(name) + " (deleted)";  // memfd_create(2)
  double bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/" + std::to_string(process) + "/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code closed;
    if (std::filesystem::read_symlink(entry->path(), closed) != link) continue;
    struct stat file {};
    if (::stat(entry->path().c_str(), &file) == 0)
      bytes += static_cast<double>(file.st_blocks) * kBytesOfBlock;
  }
  return bytes;
}

}  // namespace lockstep::launch
