// ObjectStore in a local folder or a mounted volume.

#include "runtime/checkpoint/file_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

Error BadFolder(StoreUser user, const std::string& folder, const std::string& problem) {
  const std::string right = user == StoreUser::kJob
                                ? "a folder that the worker may write to"
                                : "the folder of spec.checkpoint.uri, which you may read (for rm: write to)";
  return {ErrorCode::kForbidden, FieldOf(user) + ": file://" + folder + ": " + problem + "; name " + right};
}

// Codes of temporary errors: the server of a mounted file system is away (kUnavailable: the operation may
// have happened), or the file system is full (kThrottled: it has not).
ErrorCode CodeOf(int number, ErrorCode otherwise) {
  static constexpr std::array kAway = {EIO,        ESTALE,   ETIMEDOUT,    ENOTCONN,   ECONNREFUSED,
                                       ECONNRESET, ENETDOWN, EHOSTUNREACH, ENETUNREACH};
  if (std::find(kAway.begin(), kAway.end(), number) != kAway.end()) return ErrorCode::kUnavailable;
  return number == ENOSPC || number == EDQUOT ? ErrorCode::kThrottled : otherwise;
}

// Another job may remove an empty folder just before this one writes into it.
constexpr int kTries = 10;

class FileStore final : public ObjectStore {
 public:
  FileStore(std::string folder, StoreUser user) : folder_(std::move(folder)), user_(user) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    return PutPaced(name, content, [](int64_t) { return Result<void>(); });
  }

  Result<void> PutPaced(const std::string& name, std::string_view content, const Pace& pace) override {
    const std::string path = Path(name);
    Result<void> written;
    for (int i = 0; i < kTries; ++i) {
      written = MakeFolder(fs::path(path).parent_path());
      if (!written.ok()) continue;
      written = WriteInPieces(path, content, pace);
      if (written.ok() || written.error().code != ErrorCode::kNotFound) return written;
    }
    return written;
  }

  Result<std::string> Get(const std::string& name) override { return ReadFile(Path(name)); }

  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    const Fd fd(::open(Path(name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ReadError(name, errno);
    while (!target.empty()) {
      const ssize_t got = ::pread(fd.get(), target.data(), target.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ReadError(name, errno);
      if (got == 0) return Error{ErrorCode::kDataLoss, UriOf(name) + ": is cut short"};
      target = target.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    return {};
  }

  Result<std::vector<ObjectInfo>> List() override {
    std::vector<ObjectInfo> objects;
    std::error_code error;
    Collect(folder_, objects, error);
    if (error) return BadWith("cannot be listed", error);
    std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return objects;
  }

  Result<void> Delete(const std::string& name) override {
    std::error_code error;
    fs::remove(Path(name), error);
    if (error) return BadWith("cannot delete " + name, error);
    const fs::path parent = fs::path(Path(name)).parent_path();
    if (parent != fs::path(folder_))
      fs::remove(parent, error);  // removes the step's folder together with its last object
    return {};
  }

  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "file://" + Path(name); }

  // Creates the parent folders, too, and syncs each before anything inside it.
  Result<void> MakeFolder(const fs::path& folder) const {
    std::error_code error;
    if (fs::is_directory(folder, error)) return {};
    if (folder.has_relative_path()) LOCKSTEP_TRY(MakeFolder(folder.parent_path()));
    fs::create_directory(folder, error);
    if (error) return BadWith("cannot make the folder " + folder.string(), error);
    return SyncFolder(folder.parent_path());
  }

 private:
  // kNotFound: the folder of the file no longer exists.
  Result<void> WriteInPieces(const std::string& path, std::string_view content, const Pace& pace) const {
    const std::string temporary = path + ".tmp" + std::to_string(::getpid());
    Result<void> written = FillFile(temporary, content, pace);
    if (written.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
      written = BadErrno("renaming to " + path);
    if (!written.ok()) ::unlink(temporary.c_str());
    return written.ok() ? SyncFolder(fs::path(path).parent_path()) : written;
  }

  // Without this, a power loss may remove the names of files that are already on the disk.
  Result<void> SyncFolder(const fs::path& folder) const {
    const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return BadErrno("opening " + folder.string());
    // Some file systems do not support this, and do not need it.
    if (::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return {};
    return BadErrno("writing " + folder.string());
  }

  Result<void> FillFile(const std::string& path, std::string_view content, const Pace& pace) const {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.valid()) return BadErrno("creating " + path);
    while (!content.empty()) {
      const std::string_view piece = content.substr(0, kPacedBytes);
      LOCKSTEP_TRY(pace(static_cast<int64_t>(piece.size())));
      const ssize_t written = ::write(fd.get(), piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return BadErrno("writing " + path);
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    return ::fsync(fd.get()) == 0 ? Result<void>() : BadErrno("writing " + path);
  }

  [[nodiscard]] Error BadWith(const std::string& what, const std::error_code& why) const {
    Error error = Bad(what + ": " + why.message());
    error.code = CodeOf(why.value(), error.code);
    return error;
  }

  Error BadErrno(const std::string& what) const {
    const int number = errno;
    Error error = Bad(what + ": " + std::strerror(number));
    if (number == ENOENT) error.code = ErrorCode::kNotFound;
    error.code = CodeOf(number, error.code);
    return error;
  }

  // Another rank may delete objects and folders meanwhile; what no longer exists is omitted.
  void Collect(const fs::path& folder, std::vector<ObjectInfo>& objects, std::error_code& error) const {
    fs::directory_iterator it(folder, error);
    if (error == std::errc::no_such_file_or_directory && folder != folder_) return error.clear();
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      std::error_code gone;
      if (it->is_directory(gone)) {
        Collect(it->path(), objects, error);
        if (error) return;
      } else if (it->is_regular_file(gone)) {
        const auto bytes = static_cast<int64_t>(it->file_size(gone));
        const auto changed = std::chrono::file_clock::to_sys(it->last_write_time(gone));
        if (!gone) objects.push_back({it->path().lexically_relative(folder_).string(), bytes, changed});
      }
    }
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] Error Bad(const std::string& problem) const { return BadFolder(user_, folder_, problem); }
  [[nodiscard]] Error ReadError(const std::string& name, int number) const {
    const ErrorCode code = number == ENOENT   ? ErrorCode::kNotFound
                           : number == EACCES ? ErrorCode::kForbidden
                                              : CodeOf(number, ErrorCode::kInternal);
    return {code, "reading " + UriOf(name) + ": " + std::strerror(number)};
  }

  const std::string folder_;
  const StoreUser user_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenFileStore(const std::string& folder, StoreUser user) {
  auto store = std::make_unique<FileStore>(folder, user);
  std::error_code error;
  if (user == StoreUser::kCommand) {
    const bool exists = fs::is_directory(folder, error);
    if (!exists) {
      return Error{ErrorCode::kInvalidArgument,
                   BadFolder(user, folder, error ? error.message() : "is no folder").message};
    }
    return std::unique_ptr<ObjectStore>(std::move(store));
  }
  // A file system that is away may come back (see CheckWritable).
  const Result<void> made = store->MakeFolder(folder);
  if (!made.ok() && !made.error().IsTransient()) return made.error();
  LOCKSTEP_TRY(CheckWritable(*store));
  return std::unique_ptr<ObjectStore>(std::move(store));
}

}  // namespace lockstep::checkpoint
