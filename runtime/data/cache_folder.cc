#include "runtime/data/cache_folder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/data/fetch.h"

namespace lockstep::data {

namespace fs = std::filesystem;

int64_t BytesOf(const std::vector<RemoteObject>& objects) {
  return std::accumulate(objects.begin(), objects.end(), int64_t{0},
                         [](int64_t sum, const RemoteObject& object) { return sum + object.bytes; });
}

bool IsOfThisMachineAlone(const std::string& folder) {
  constexpr uint32_t kXfs = 0x58465342;
  constexpr uint32_t kZfs = 0x2fc12fc1;
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return false;
  switch (static_cast<uint32_t>(status.f_type)) {
    case EXT4_SUPER_MAGIC:
    case kXfs:
    case kZfs:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case TMPFS_MAGIC: return true;
    default: return false;
  }
}

Result<bool> TryLock(int fd, int how, const std::string& path) {
  if (::flock(fd, how | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  return Error{ErrorCode::kInvalidArgument, "spec.training.data.cache: " + path + ": " +
                                                std::strerror(errno) +
                                                "; name a folder of a file system that has locks"};
}

Result<void> CheckRoom(const std::string& data, const std::string& folder,
                       const std::vector<RemoteObject>& missing) {
  int64_t needed = BytesOf(missing);
  for (const RemoteObject& object : missing) {
    struct stat status {};
    if (::stat(PartialOf(folder + "/" + object.name).c_str(), &status) == 0)
      needed -= std::min<int64_t>(object.bytes, status.st_blocks * 512);
  }
  struct statvfs volume {};
  if (::statvfs(folder.c_str(), &volume) != 0) return {};
  const auto room = static_cast<int64_t>(volume.f_bavail * volume.f_frsize);
  if (needed <= room) return {};
  return Error{ErrorCode::kInvalidArgument,
               "spec.training.data.cache: " + data + " needs " + std::to_string(needed) + " bytes in " +
                   folder + ", where " + std::to_string(room) +
                   " are free; give it a larger volume, or remove what is not needed there"};
}

void RemoveOtherVersions(const std::string& folder) {
  const std::string name = fs::path(folder).filename().string();
  const std::string prefix = name.substr(0, name.rfind('@') + 1);
  std::error_code error;
  for (fs::directory_iterator at(fs::path(folder).parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string path = at->path().string();
    std::error_code gone;
    const bool is_version =
        at->path().filename().string().starts_with(prefix) && path.size() == folder.size();
    if (!is_version || path == folder || !at->is_directory(gone)) continue;
    const Fd lock(::open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC));
    if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(path, gone);
    log::Info("removed an older copy of the training data", {{"folder", path}});
  }
}

}  // namespace lockstep::data
