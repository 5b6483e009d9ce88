#include "runtime/data/local_copy.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/data/bad_path.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kBetweenLooks{200};
constexpr Seconds kBetweenSigns{1};
constexpr Seconds kBetweenLogs{10};

using Names = std::vector<std::string>;

// What a format opens: of each line the first that is there.
std::vector<Names> FilesOf(api::DataFormat format) {
  switch (format) {
    case api::DataFormat::kIdx: {
      std::vector<Names> files;
      for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
        files.push_back({name, name + ".gz"});
      return files;
    }
    case api::DataFormat::kCsv: return {{"train.csv"}, {"test.csv"}};
    case api::DataFormat::kNpy:
      return {{"train-inputs.npy"}, {"train-targets.npy"}, {"test-inputs.npy"}, {"test-targets.npy"}};
    case api::DataFormat::kTokens: return {{"train.bin", "train.txt"}, {"val.bin", "val.txt"}};
    case api::DataFormat::kImageFolder:
    case api::DataFormat::kSynthetic: return {};
  }
  return {};
}

int64_t BytesOf(const std::vector<RemoteObject>& objects) {
  return std::accumulate(objects.begin(), objects.end(), int64_t{0},
                         [](int64_t sum, const RemoteObject& object) { return sum + object.bytes; });
}

// What the format needs, as it is now.
class Inventory {
 public:
  Inventory(const api::DataSpec& spec, RemoteObjects& source, const FetchOptions& options)
      : spec_(spec), source_(source), options_(options) {}

  Result<std::vector<RemoteObject>> Take() {
    if (spec_.format == api::DataFormat::kImageFolder) return ListImages();
    std::vector<RemoteObject> objects;
    for (const Names& names : FilesOf(spec_.format)) {
      LOCKSTEP_TRY(RemoteObject object, FindOne(names));
      objects.push_back(std::move(object));
    }
    return objects;
  }

 private:
  Result<RemoteObject> FindOne(const Names& names) {
    for (const std::string& name : names) {
      Result<RemoteObject> found = WithRetries<RemoteObject>(options_, [&] { return source_.Find(name); });
      if (found.ok() || found.error().code != ErrorCode::kNotFound) return found;
    }
    return BadPath(spec_.path + " has no " + Join(names, " or "),
                   "format " + std::string(NameOf(spec_.format)) +
                       " needs it; put it there, or correct the bucket or the folder");
  }

  // Many, so they are not asked for one by one.
  Result<std::vector<RemoteObject>> ListImages() {
    LOCKSTEP_TRY(std::vector<RemoteObject> objects,
                 WithRetries<std::vector<RemoteObject>>(options_, [&] { return source_.List(); }));
    std::erase_if(objects, [](const RemoteObject& object) {
      const bool is_data = object.name.starts_with("train/") || object.name.starts_with("test/");
      return !is_data || object.name.find("/.") != std::string::npos;  // as of local folders
    });
    if (objects.empty())
      return BadPath(spec_.path + " has no objects below train/ and test/",
                     "format imageFolder needs train/CLASS/ and test/CLASS/ there");
    for (const RemoteObject& object : objects) {
      if (!IsPlainName(object.name))
        return BadPath(spec_.path + " has an object " + object.name + ", which can be no file", "rename it");
    }
    return objects;
  }

  const api::DataSpec& spec_;
  RemoteObjects& source_;
  const FetchOptions& options_;
};

// Shows that data arrives: to the hang detector of this process, to those that wait for it, and to people.
class Progress {
 public:
  Progress(const Fd& lock, const std::string& path, int64_t bytes, const CopyOptions& options)
      : lock_(lock), path_(path), bytes_(bytes), options_(options) {}

  void Add(int64_t bytes) {
    const std::lock_guard guard(mutex_);
    fetched_ += bytes;
    const SteadyTime now = clock_.Steady();
    if (now - last_sign_ < kBetweenSigns) return;
    last_sign_ = now;
    (void)::futimens(lock_.get(), nullptr);
    options_.alive();
    if (now - last_log_ < kBetweenLogs) return;
    last_log_ = now;
    log::Info("fetching training data", {{"path", path_}, {"bytes", fetched_}, {"of_bytes", bytes_}});
  }

 private:
  const Fd& lock_;
  const std::string& path_;
  const int64_t bytes_;
  const CopyOptions& options_;
  const SystemClock clock_;
  std::mutex mutex_;
  // GUARDED_BY(mutex_)
  int64_t fetched_ = 0;
  SteadyTime last_sign_;
  SteadyTime last_log_ = clock_.Steady();
};

class Copier {
 public:
  Copier(const api::DataSpec& spec, RemoteObjects& source, const CopyOptions& options)
      : spec_(spec), source_(source), options_(options), inventory_(spec, source, options_.fetch) {}

  Result<LocalCopy> Run() {
    LOCKSTEP_TRY(objects_, inventory_.Take());
    // Buckets of other stores may have the same name; those of S3 have at least three letters.
    const std::string scheme = SchemeOf(spec_);
    base_ = (spec_.cache.empty() ? api::kDataCacheFolder : spec_.cache) + "/" +
            (scheme == "s3" ? "" : scheme + "/") + api::RemotePath(spec_);
    folder_ = base_ + "@" + VersionOf(objects_);
    LOCKSTEP_TRY(OpenLock());
    LOCKSTEP_TRY(const bool is_mine, WaitForTurn());
    if (is_mine) {
      LOCKSTEP_TRY(FetchMissing());
      (void)::flock(lock_.get(), LOCK_SH);  // at once: nobody else has it
      RemoveOtherVersions();
    }
    return LocalCopy{folder_, std::move(lock_)};
  }

 private:
  Result<void> OpenLock() {
    std::error_code error;
    fs::create_directories(folder_, error);
    errno = error.value();
    if (!error) lock_ = Fd(::open((folder_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock_.valid()) return {};
    return Error{ErrorCode::kInvalidArgument, "spec.training.data.cache: " + folder_ + ": " +
                                                  std::strerror(errno) +
                                                  "; name a folder that the worker may write to"};
  }

  // True: this process is to fetch. False: everything is there.
  Result<bool> WaitForTurn() {
    SteadyTime last_sign = clock_.Steady();
    std::pair<int64_t, int64_t> seen = Touched();
    bool waits = false;
    while (true) {
      if (::flock(lock_.get(), LOCK_SH | LOCK_NB) == 0 && MissingIn(folder_, objects_).empty()) return false;
      if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return true;
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return Error{ErrorCode::kInvalidArgument, "spec.training.data.cache: " + folder_ +
                                                      ".lock: " + std::strerror(errno) +
                                                      "; name a folder of a file system that has locks"};
      }
      if (options_.fetch.is_stopped()) return Error{ErrorCode::kCancelled, "waiting for data was stopped"};
      if (const auto touched = Touched(); touched != seen) {
        seen = touched;
        last_sign = clock_.Steady();
        options_.alive();
      }
      if (clock_.Steady() - last_sign > options_.longest_silence) {
        return Error{ErrorCode::kUnavailable, "spec.training.data.path: " + spec_.path +
                                                  ": another process fetches it into " + folder_ +
                                                  ", without progress for " +
                                                  FormatNumber(options_.longest_silence.count()) +
                                                  " s; end the process that holds " + folder_ + ".lock"};
      }
      if (!std::exchange(waits, true))
        log::Info("waiting for another process that fetches the training data", {{"path", spec_.path}});
      options_.fetch.pause(kBetweenLooks);
    }
  }

  // When whoever fetches last said that it does.
  [[nodiscard]] std::pair<int64_t, int64_t> Touched() const {
    struct stat status {};
    (void)::fstat(lock_.get(), &status);
    return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }

  Result<void> FetchMissing() {
    const std::vector<RemoteObject> missing = MissingIn(folder_, objects_);
    if (!CheckRoom(missing).ok()) RemoveOtherVersions();
    LOCKSTEP_TRY(CheckRoom(missing));
    const int64_t bytes = BytesOf(missing);
    const SteadyTime start = clock_.Steady();
    log::Info("fetching training data",
              {{"path", spec_.path}, {"objects", missing.size()}, {"of_bytes", bytes}, {"folder", folder_}});
    Progress progress(lock_, spec_.path, bytes, options_);
    FetchOptions fetch = options_.fetch;
    fetch.fetched = [&](int64_t part) { progress.Add(part); };
    Result<void> fetched = Fetch(source_, missing, folder_, fetch);
    if (!fetched.ok() && fetched.error().code == ErrorCode::kCancelled) return fetched;
    // The parts were read one by one: of an object that changed in between they do not fit together.
    const Result<std::vector<RemoteObject>> now = inventory_.Take();
    if (now.ok() && *now != objects_) return RefuseChange(*now);
    if (!fetched.ok()) return fetched;
    if (!now.ok()) return now.error();
    log::Info(
        "training data is here",
        {{"path", spec_.path}, {"seconds", Seconds(clock_.Steady() - start).count()}, {"folder", folder_}});
    return {};
  }

  // Before hours are spent on what does not fit.
  Result<void> CheckRoom(const std::vector<RemoteObject>& missing) const {
    int64_t needed = BytesOf(missing);
    for (const RemoteObject& object : missing) {
      struct stat status {};
      if (::stat((folder_ + "/" + object.name + ".partial").c_str(), &status) == 0)
        needed -= std::min<int64_t>(object.bytes, status.st_blocks * 512);
    }
    struct statvfs volume {};
    if (::statvfs(folder_.c_str(), &volume) != 0) return {};
    const auto room = static_cast<int64_t>(volume.f_bavail * volume.f_frsize);
    if (needed <= room) return {};
    return Error{ErrorCode::kInvalidArgument,
                 "spec.training.data.cache: " + spec_.path + " needs " + std::to_string(needed) +
                     " bytes in " + folder_ + ", where " + std::to_string(room) +
                     " are free; give it a larger volume, or remove what is not needed there"};
  }

  // What was fetched is no good then, under whatever name.
  Error RefuseChange(const std::vector<RemoteObject>& now) const {
    const auto [was, is] = std::mismatch(objects_.begin(), objects_.end(), now.begin(), now.end());
    const RemoteObject& changed = was != objects_.end() ? *was : *is;
    std::error_code error;
    fs::remove_all(folder_, error);
    return {ErrorCode::kConflict,
            "spec.training.data.path: " + SchemeOf(spec_) + "://" + api::RemotePath(spec_) + "/" +
                changed.name +
                " has changed while it was fetched; write a data set to a folder of its own before a "
                "job names it, and start this job again"};
  }

  void RemoveOtherVersions() const {
    const std::string prefix = fs::path(base_).filename().string() + "@";
    std::error_code error;
    for (fs::directory_iterator at(fs::path(base_).parent_path(), error), end; !error && at != end;
         at.increment(error)) {
      const std::string path = at->path().string();
      std::error_code gone;
      const bool is_version =
          at->path().filename().string().starts_with(prefix) && path.size() == folder_.size();
      if (!is_version || path == folder_ || !at->is_directory(gone)) continue;
      const Fd lock(::open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC));
      if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
      fs::remove_all(path, gone);
      log::Info("removed an older copy of the training data", {{"folder", path}});
    }
  }

  const api::DataSpec& spec_;
  RemoteObjects& source_;
  const CopyOptions options_;
  Inventory inventory_;
  const SystemClock clock_;
  std::vector<RemoteObject> objects_;
  std::string base_;
  std::string folder_;
  Fd lock_;
};

}  // namespace

bool IsPlainName(std::string_view name) {
  constexpr std::size_t kLongest = 200;  // of one component; ".partial" follows
  for (const std::string& component : Split(name, '/')) {
    const bool is_plain = !component.empty() && component != "." && component != ".." &&
                          component.size() <= kLongest && component.find('\0') == std::string::npos;
    if (!is_plain) return false;
  }
  return true;
}

std::string VersionOf(const std::vector<RemoteObject>& objects) {
  std::string text;
  for (const RemoteObject& object : objects)
    text += object.name + '\0' + std::to_string(object.bytes) + '\0' + object.version + '\0';
  return StableHash(text);
}

Result<LocalCopy> MakeLocalCopy(const api::DataSpec& spec, RemoteObjects& source,
                                const CopyOptions& options) {
  return Copier(spec, source, options).Run();
}

}  // namespace lockstep::data
