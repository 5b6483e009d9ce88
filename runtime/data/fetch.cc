#include "runtime/data/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

Error CacheFailed(const std::string& path) {
  const int number = errno;
  const std::string right = number == ENOSPC || number == EDQUOT
                                ? "give it a larger volume"
                                : "name a folder that the worker may write to";
  return {ErrorCode::kInvalidArgument,
          "spec.training.data.cache: " + path + ": " + std::strerror(number) + "; " + right};
}

bool WriteAt(int fd, int64_t offset, std::span<const char> content) {
  while (!content.empty()) {
    const ssize_t written = ::pwrite(fd, content.data(), content.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content = content.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return true;
}

bool HasBytes(const std::string& path, int64_t bytes) {
  std::error_code error;
  const uintmax_t found = fs::file_size(path, error);
  return !error && found == static_cast<uintmax_t>(bytes);
}

Result<void> MakeFolderOf(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  errno = error.value();
  return error ? CacheFailed(path) : Result<void>();
}

Result<void> Rename(const std::string& path) {
  return std::rename(PartialOf(path).c_str(), path.c_str()) == 0 ? Result<void>() : CacheFailed(path);
}

Result<void> StoreWhole(const std::string& path, std::span<const char> content) {
  const Fd file(::open(PartialOf(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid() || !WriteAt(file.get(), 0, content)) return CacheFailed(path);
  return Rename(path);
}

// Never shrinks the file, because other processes may have mapped it.
Result<void> StorePart(const std::string& path, const Part& part, int64_t of_bytes,
                       std::span<const char> content) {
  const Fd file(::open(PartialOf(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  // Synced, because what the board records must exist after a crash of the machine, too.
  const bool is_stored = file.valid() && ::ftruncate(file.get(), of_bytes) == 0 &&
                         WriteAt(file.get(), part.offset, content) && ::fdatasync(file.get()) == 0;
  return is_stored ? Result<void>() : CacheFailed(path);
}

class Fetcher {
 public:
  Fetcher(RemoteObjects& source, const Copying& copying, const FetchOptions& options)
      : source_(source),
        objects_(copying.objects),
        numbers_(copying.numbers),
        folder_(copying.folder),
        board_(copying.board),
        options_(options),
        taken_(numbers_.count()) {}

  Result<void> Run() {
    LOCKSTEP_TRY(CountWhatIsLeft());
    // Test data comes after training data, even if its name sorts before.
    for (std::size_t i = 0; i < objects_.size() && start_ == 0; ++i)
      if (objects_[i].name.starts_with("train")) start_ = numbers_.Of(i).begin;
    {
      std::vector<std::jthread> threads;
      const std::size_t most = std::min(numbers_.count(), static_cast<std::size_t>(options_.threads));
      threads.reserve(most);
      for (std::size_t i = 0; i < most; ++i) threads.emplace_back([this] { Work(); });
    }
    const MutexLock lock(mutex_);
    return failure_.has_value() ? Result<void>(*failure_) : Result<void>();
  }

 private:
  [[nodiscard]] std::string PathOf(std::size_t object) const { return folder_ + "/" + objects_[object].name; }

  Result<void> CountWhatIsLeft() {
    const MutexLock lock(mutex_);
    for (std::size_t object = 0; object < objects_.size(); ++object) {
      const auto [begin, end] = numbers_.Of(object);
      if (end - begin == 1) continue;
      for (std::size_t part = begin; part < end; ++part) left_[object] += board_.IsThere(part) ? 0 : 1;
      if (left_[object] == 0 && !HasBytes(PathOf(object), objects_[object].bytes))
        LOCKSTEP_TRY(Rename(PathOf(object)));
    }
    return {};
  }

  void Work() {
    std::vector<char> buffer(static_cast<std::size_t>(options_.part_bytes));
    while (!failed_) {
      if (options_.retries.is_stopped())
        return Fail({ErrorCode::kCancelled, "fetching training data was stopped"});
      const std::optional<std::size_t> number = Next();
      if (!number.has_value()) return;
      const Result<void> stored = FetchPart(*number, buffer);
      if (!stored.ok()) Fail(stored.error());
    }
  }

  // A part that a reader waits for, else the next one in order.
  std::optional<std::size_t> Next() {
    const MutexLock lock(mutex_);
    if (const uint64_t requests = board_.requests(); requests != requests_seen_) {
      requests_seen_ = requests;
      for (std::size_t i = 0; i < numbers_.count(); ++i)
        if (board_.IsWanted(i) && !taken_[i]) wanted_.push_back(i);
    }
    while (!wanted_.empty()) {
      const std::size_t number = wanted_.front();
      wanted_.pop_front();
      if (Take(number)) return number;
    }
    while (next_ < numbers_.count()) {
      const std::size_t number = (start_ + next_++) % numbers_.count();
      if (Take(number)) return number;
    }
    return std::nullopt;
  }

  bool Take(std::size_t number) LOCKSTEP_REQUIRES(mutex_) {
    if (taken_[number] || board_.IsThere(number)) return false;
    taken_[number] = true;
    return true;
  }

  Result<void> FetchPart(std::size_t number, std::span<char> buffer) {
    const Part part = numbers_.At(number);
    const RemoteObject& object = objects_[part.object];
    const std::span<char> content = buffer.first(static_cast<std::size_t>(part.bytes));
    const bool is_all = part.bytes == object.bytes;
    if (!content.empty()) {
      LOCKSTEP_TRY(WithRetries<void>(options_.retries,
                                     [&] { return source_.Read(object.name, part.offset, content); }));
    }
    if (options_.check_versions && !is_all) LOCKSTEP_TRY(CheckVersion(object));
    const std::string path = PathOf(part.object);
    LOCKSTEP_TRY(MakeFolderOf(path));
    LOCKSTEP_TRY(is_all ? StoreWhole(path, content) : StorePart(path, part, object.bytes, content));
    // Before the board records the last part: a process that sees all parts must find the file by its final
    // name.
    if (!is_all) LOCKSTEP_TRY(RenameAfterLast(part.object));
    board_.SetThere(number);
    options_.fetched(part.bytes);
    return {};
  }

  // The part was read after the version was determined, and before it is determined again.
  Result<void> CheckVersion(const RemoteObject& object) {
    LOCKSTEP_TRY(const RemoteObject now,
                 WithRetries<RemoteObject>(options_.retries, [&] { return source_.Find(object.name); }));
    if (now == object) return {};
    return Error{ErrorCode::kConflict, "spec.training.data.path: " + object.name + " has changed"};
  }

  Result<void> RenameAfterLast(std::size_t object) {
    const MutexLock lock(mutex_);
    return --left_[object] == 0 ? Rename(PathOf(object)) : Result<void>();
  }

  void Fail(const Error& error) {
    const MutexLock lock(mutex_);
    if (!failure_.has_value()) failure_ = error;
    failed_ = true;
  }

  RemoteObjects& source_;
  const std::vector<RemoteObject>& objects_;
  const PartNumbers& numbers_;
  const std::string& folder_;
  PartBoard& board_;
  const FetchOptions& options_;
  std::size_t start_ = 0;
  std::atomic<bool> failed_ = false;
  Mutex mutex_;
  std::vector<bool> taken_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<std::size_t> wanted_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t requests_seen_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::size_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // at or after start_
  // Remaining parts of each object with several parts.
  std::map<std::size_t, std::size_t> left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<Error> failure_ LOCKSTEP_GUARDED_BY(mutex_);  // the first one
};

}  // namespace

std::string PartialOf(const std::string& path) { return path + ".partial"; }

std::vector<RemoteObject> MissingIn(const std::string& folder, const std::vector<RemoteObject>& objects) {
  std::vector<RemoteObject> missing;
  for (const RemoteObject& object : objects)
    if (!HasBytes(folder + "/" + object.name, object.bytes)) missing.push_back(object);
  return missing;
}

void Reconcile(const Copying& copying) {
  for (std::size_t object = 0; object < copying.objects.size(); ++object) {
    const std::string path = copying.folder + "/" + copying.objects[object].name;
    const int64_t bytes = copying.objects[object].bytes;
    const auto [begin, end] = copying.numbers.Of(object);
    const bool is_whole = HasBytes(path, bytes);
    const bool has_parts = end - begin > 1 && HasBytes(PartialOf(path), bytes);
    for (std::size_t part = begin; part < end; ++part) {
      if (is_whole) copying.board.SetThere(part);
      if (!is_whole && !has_parts) copying.board.SetMissing(part);
    }
  }
}

Result<void> Fetch(RemoteObjects& source, const Copying& copying, const FetchOptions& options) {
  Reconcile(copying);
  return Fetcher(source, copying, options).Run();
}

}  // namespace lockstep::data
