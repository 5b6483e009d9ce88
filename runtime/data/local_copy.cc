#include "runtime/data/local_copy.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/common/base/error_exception.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/strings.h"
#include "runtime/data/cache_folder.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kFirstLook{1};
constexpr Milliseconds kBetweenLooks{100};
constexpr Seconds kBetweenSigns{1};
constexpr Seconds kBetweenLogs{10};

// Formats that map their files, or read one per sample; the others parse all of it at the start.
bool IsReadAsItIsUsed(api::DataFormat format) {
  return format == api::DataFormat::kTokens || format == api::DataFormat::kImageFolder;
}

// Reports that data arrives: to waiting processes by the modification time of the lock file, and to the log.
class Progress {
 public:
  Progress(const Fd& lock, const std::string& path, int64_t bytes) : lock_(lock), path_(path), bytes_(bytes) {
    (void)::futimens(lock_.get(), nullptr);
  }

  void Add(int64_t bytes) {
    const MutexLock guard(mutex_);
    fetched_ += bytes;
    const SteadyTime now = clock_.Steady();
    if (now - last_sign_ < kBetweenSigns) return;
    last_sign_ = now;
    (void)::futimens(lock_.get(), nullptr);
    if (now - last_log_ < kBetweenLogs) return;
    last_log_ = now;
    log::Info("fetching training data", {{"path", path_}, {"bytes", fetched_}, {"of_bytes", bytes_}});
  }

 private:
  const Fd& lock_;
  const std::string& path_;
  const int64_t bytes_;
  const SystemClock clock_;
  Mutex mutex_;
  int64_t fetched_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  SteadyTime last_sign_ LOCKSTEP_GUARDED_BY(mutex_);
  SteadyTime last_log_ LOCKSTEP_GUARDED_BY(mutex_) = clock_.Steady();
};

// Measures how long a reader has waited without progress of any process that downloads.
class Silence {
 public:
  explicit Silence(const Fd& lock) : lock_(lock) {}

  Seconds Length() {
    if (const auto touched = Touched(); touched != seen_) {
      seen_ = touched;
      since_ = clock_.Steady();
    }
    return clock_.Steady() - since_;
  }

 private:
  [[nodiscard]] std::pair<int64_t, int64_t> Touched() const {
    struct stat status {};
    (void)::fstat(lock_.get(), &status);
    return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }

  const Fd& lock_;
  const SystemClock clock_;
  SteadyTime since_ = clock_.Steady();
  std::pair<int64_t, int64_t> seen_ = Touched();
};

}  // namespace

class LocalCopy::State {
 public:
  State(const api::DataSpec& spec, std::unique_ptr<RemoteObjects> source, const CopyOptions& options)
      : spec_(spec), source_(std::move(source)), options_(options) {}

  Result<void> Open() {
    LOCKSTEP_TRY(objects_, TakeInventory(spec_, *source_, options_.fetch));
    numbers_.emplace(objects_, options_.fetch.part_bytes);
    // Buckets of different stores may have the same name; S3 bucket names have at least three letters.
    const std::string scheme = SchemeOf(spec_);
    folder_ = (spec_.cache.empty() ? api::kDataCacheFolder : spec_.cache) + "/" +
              (scheme == "s3" ? "" : scheme + "/") + api::RemotePath(spec_) + "@" + VersionOf(objects_);
    LOCKSTEP_TRY(Enter());
    reads_ahead_ = IsReadAsItIsUsed(spec_.format) && IsOfThisMachineAlone(folder_);
    return reads_ahead_ ? FetchUnlessFetching() : Wait({}, /*may_stop=*/true);
  }

  Result<void> WaitFor(std::span<const Stretch> stretches) {
    if (is_whole_) return {};
    std::vector<std::size_t> missing;
    for (const Stretch& stretch : stretches) {
      const std::size_t object = IndexOf(stretch.object);
      const int64_t bytes = std::min(objects_[object].bytes - stretch.offset, stretch.bytes);
      const auto [first, after] = numbers_->Holding(object, stretch.offset, stretch.offset + bytes);
      for (std::size_t part = first; part < after; ++part)
        if (!board_->IsThere(part)) missing.push_back(part);
    }
    if (missing.empty() && !board_->changed()) return {};
    board_->Want(missing);
    return Wait(missing, /*may_stop=*/false);
  }

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::vector<RemoteObject>& objects() const { return objects_; }
  [[nodiscard]] const Fd& lock() const { return lock_; }

 private:
  [[nodiscard]] std::size_t IndexOf(const std::string& object) const {
    const auto found =
        std::lower_bound(objects_.begin(), objects_.end(), object,
                         [](const RemoteObject& one, const std::string& name) { return one.name < name; });
    LOCKSTEP_CHECK(found != objects_.end() && found->name == object, object);
    return static_cast<std::size_t>(found - objects_.begin());
  }

  // Joins the users of the folder. Only a process that enters while there is no other user may correct the
  // board, because its content is shared.
  Result<void> Enter() {
    LOCKSTEP_TRY(OpenLock());
    Silence silence(lock_);
    while (true) {
      LOCKSTEP_TRY(const bool is_alone, TryLock(lock_.get(), LOCK_EX, folder_ + ".lock"));
      if (is_alone) {
        LOCKSTEP_TRY(MakeBoard());
        (void)::flock(lock_.get(), LOCK_SH);
        return {};
      }
      LOCKSTEP_TRY(const bool is_together, TryLock(lock_.get(), LOCK_SH, folder_ + ".lock"));
      if (is_together) {
        if (std::optional<PartBoard> board = PartBoard::Open(BoardPath(), numbers_->count())) {
          board_.emplace(std::move(*board));
          return {};
        }
        (void)::flock(lock_.get(), LOCK_UN);  // another process has just removed the folder
      }
      if (options_.fetch.retries.is_stopped())
        return Error{ErrorCode::kCancelled, "waiting for data was stopped"};
      if (silence.Length() > options_.longest_silence) return IsSilent(folder_ + ".lock");
      ShowLife();
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  Result<void> OpenLock() {
    std::error_code error;
    fs::create_directories(fs::path(folder_).parent_path(), error);
    errno = error.value();
    if (!error) lock_ = Fd(::open((folder_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    return lock_.valid() ? Result<void>() : CacheFailed();
  }

  [[nodiscard]] Error CacheFailed() const {
    return {ErrorCode::kInvalidArgument, "spec.training.data.cache: " + folder_ + ": " +
                                             std::strerror(errno) +
                                             "; name a folder that the worker may write to"};
  }

  [[nodiscard]] std::string BoardPath() const { return folder_ + "/.parts"; }

  Result<void> MakeBoard() {
    std::error_code error;
    if (const auto board = PartBoard::Open(BoardPath(), numbers_->count()); board && board->changed())
      fs::remove_all(folder_, error);
    fs::create_directories(folder_, error);
    errno = error.value();
    if (error) return CacheFailed();
    LOCKSTEP_TRY(PartBoard board, PartBoard::Make(BoardPath(), numbers_->count()));
    board_.emplace(std::move(board));
    Reconcile({objects_, *numbers_, folder_, *board_});
    return {};
  }

  // Waits until these parts exist, or, if `parts` is empty, all of them.
  Result<void> Wait(const std::vector<std::size_t>& parts, bool may_stop) {
    const int failures = failures_;
    Silence silence(lock_);
    for (Milliseconds pause = kFirstLook;; pause = std::min(2 * pause, kBetweenLooks)) {
      if (board_->changed()) return HasChanged();
      const auto is_there = [this](std::size_t part) { return board_->IsThere(part); };
      if (is_whole_ || (!parts.empty() && std::all_of(parts.begin(), parts.end(), is_there))) return {};
      LOCKSTEP_TRY(FailedSince(failures));
      // The process that was downloading may have ended.
      LOCKSTEP_TRY(FetchUnlessFetching());
      if (may_stop && options_.fetch.retries.is_stopped())
        return Error{ErrorCode::kCancelled, "waiting for data was stopped"};
      if (silence.Length() > options_.longest_silence) return IsSilent(BoardPath());
      ShowLife();
      std::this_thread::sleep_for(pause);
    }
  }

  [[nodiscard]] Error IsSilent(const std::string& held) const {
    return {ErrorCode::kUnavailable, "spec.training.data.path: " + spec_.path + " is fetched into " +
                                         folder_ + ", where nothing arrived for " +
                                         FormatNumber(options_.longest_silence.count()) +
                                         " s; end the process that holds " + held};
  }

  void ShowLife() {
    {
      const MutexLock guard(mutex_);
      if (last_sign_.has_value() && clock_.Steady() - *last_sign_ < kBetweenSigns) return;
      last_sign_ = clock_.Steady();
    }
    options_.alive();
  }

  Result<void> FailedSince(int failures) {
    const MutexLock guard(mutex_);
    return failures_ == failures ? Result<void>() : Result<void>(failure_);
  }

  // The lock is released when this process dies, so that another process continues the download.
  Result<void> FetchUnlessFetching() {
    const MutexLock guard(mutex_);
    if (is_fetching_ || is_whole_) return {};
    LOCKSTEP_TRY(const bool is_mine, TryLock(board_->fd(), LOCK_EX, BoardPath()));
    if (!is_mine) return {};
    Result<bool> begun = Begin();
    if (!begun.ok() || !*begun) (void)::flock(board_->fd(), LOCK_UN);
    return begun.ok() ? Result<void>() : begun.error();
  }

  // Returns false if there is nothing to download.
  Result<bool> Begin() LOCKSTEP_REQUIRES(mutex_) {
    if (board_->changed()) return false;  // Wait reports it
    std::vector<RemoteObject> missing = MissingIn(folder_, objects_);
    if (missing.empty()) {
      is_whole_ = true;
      return false;
    }
    if (!CheckRoom(spec_.path, folder_, missing).ok()) RemoveOtherVersions(folder_);
    LOCKSTEP_TRY(CheckRoom(spec_.path, folder_, missing));
    log::Info("fetching training data", {{"path", spec_.path},
                                         {"objects", missing.size()},
                                         {"of_bytes", BytesOf(missing)},
                                         {"folder", folder_},
                                         {"read_ahead", reads_ahead_}});
    is_fetching_ = true;
    fetching_ = std::jthread([this, bytes = BytesOf(missing)](const std::stop_token& stop) {
      const Result<void> fetched = FetchMissing(bytes, stop);
      const MutexLock end(mutex_);
      Ended(fetched);
    });
    return true;
  }

  void Ended(const Result<void>& fetched) LOCKSTEP_REQUIRES(mutex_) {
    is_whole_ = fetched.ok();
    if (!fetched.ok() && fetched.error().code != ErrorCode::kCancelled) {
      // Perhaps no reader waits, or what it needs exists already.
      log::Warning("fetching training data stopped", {{"reason", fetched.error().message}});
      failure_ = fetched.error();
      ++failures_;
    }
    is_fetching_ = false;
    (void)::flock(board_->fd(), LOCK_UN);
  }

  Result<void> FetchMissing(int64_t bytes, const std::stop_token& stop) {
    const SteadyTime start = clock_.Steady();
    Progress progress(lock_, spec_.path, bytes);
    FetchOptions fetch = options_.fetch;
    fetch.retries.is_stopped = [&stop] { return stop.stop_requested(); };
    fetch.fetched = [&](int64_t part) { progress.Add(part); };
    // Before a step uses the data. The versions of images come from a listing and are no ETags, so they
    // cannot be compared.
    fetch.check_versions = reads_ahead_ && spec_.format != api::DataFormat::kImageFolder;
    Result<void> fetched = Fetch(*source_, {objects_, *numbers_, folder_, *board_}, fetch);
    if (!fetched.ok() && fetched.error().code == ErrorCode::kCancelled) return fetched;
    // The parts were read separately: if an object changed in between, they do not belong together.
    const Result<std::vector<RemoteObject>> now = TakeInventory(spec_, *source_, fetch);
    if (now.ok() && *now != objects_) return RefuseChange();
    if (!fetched.ok()) return fetched;
    if (!now.ok()) return now.error();
    log::Info(
        "training data is complete",
        {{"path", spec_.path}, {"seconds", Seconds(clock_.Steady() - start).count()}, {"folder", folder_}});
    RemoveOtherVersions(folder_);
    return {};
  }

  // All downloaded data is unusable then, complete or not. Other users see that on the board, which they have
  // mapped even if its file is removed.
  Error RefuseChange() {
    board_->SetChanged();
    std::error_code error;
    fs::remove_all(folder_, error);
    return HasChanged();
  }

  // Lists the store again to name the object that changed.
  Error HasChanged() {
    std::string name;
    if (const auto now = TakeInventory(spec_, *source_, options_.fetch); now.ok() && *now != objects_) {
      const auto [was, is] = std::mismatch(objects_.begin(), objects_.end(), now->begin(), now->end());
      name = "/" + (was != objects_.end() ? was->name : is->name);
    }
    return {ErrorCode::kConflict,
            "spec.training.data.path: " + SchemeOf(spec_) + "://" + api::RemotePath(spec_) + name +
                " has changed while it was fetched; write each data set to a new folder before a "
                "job uses it, and restart this job"};
  }

  const api::DataSpec spec_;
  const std::unique_ptr<RemoteObjects> source_;
  const CopyOptions options_;
  const SystemClock clock_;
  std::vector<RemoteObject> objects_;
  std::optional<PartNumbers> numbers_;
  std::string folder_;
  Fd lock_;
  std::optional<PartBoard> board_;
  bool reads_ahead_ = false;
  std::atomic<bool> is_whole_ = false;
  std::atomic<int> failures_ = 0;  // failed downloads of this process
  Mutex mutex_;
  Error failure_ LOCKSTEP_GUARDED_BY(mutex_);  // the newest one
  bool is_fetching_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::optional<SteadyTime> last_sign_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread fetching_;  // last member: ends before the others are destroyed
};

LocalCopy::LocalCopy(std::unique_ptr<State> state) : state_(std::move(state)) {}

LocalCopy::~LocalCopy() = default;

Result<std::unique_ptr<LocalCopy>> LocalCopy::Open(const api::DataSpec& spec,
                                                   std::unique_ptr<RemoteObjects> source,
                                                   const CopyOptions& options) {
  auto state = std::make_unique<State>(spec, std::move(source), options);
  LOCKSTEP_TRY(state->Open());
  return std::make_unique<LocalCopy>(std::move(state));
}

const std::string& LocalCopy::folder() const { return state_->folder(); }

const std::vector<RemoteObject>& LocalCopy::objects() const { return state_->objects(); }

Fd LocalCopy::InUse() const { return Fd(::fcntl(state_->lock().get(), F_DUPFD_CLOEXEC, 0)); }

Result<void> LocalCopy::WaitFor(std::span<const Stretch> stretches) { return state_->WaitFor(stretches); }

void LocalCopy::Need(std::span<const Stretch> stretches) {
  const Result<void> there = WaitFor(stretches);
  if (!there.ok()) ThrowUnreadable(there.error());
}

Fd LocalCopy::OpenFile(const std::string& object) const {
  const std::string path = folder() + "/" + object;
  const auto open = [](const std::string& name) { return Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC)); };
  Fd file = open(path);
  if (!file.valid()) file = open(PartialOf(path));
  return file.valid() ? std::move(file) : open(path);  // it may have been renamed in between
}

}  // namespace lockstep::data
