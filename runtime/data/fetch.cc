#include "runtime/data/fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/common/base/file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostTries = 6;
constexpr Milliseconds kFirstPause{500};

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

void Remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
}

std::string PartialOf(const std::string& path) { return path + ".partial"; }

// An object of several parts on its way into the folder. They lie in a file of another name, and a journal
// beside it says which are there.
class LargeFile {
 public:
  LargeFile(std::string path, std::vector<Part> parts) : path_(std::move(path)), missing_(std::move(parts)) {
    const Result<std::string> text = ReadFile(journal());
    std::error_code error;
    if (text.ok() && fs::exists(PartialOf(path_), error)) {
      const std::vector<Part> there = PartsInJournal(*text);
      std::erase_if(missing_, [&](const Part& part) {
        return std::find(there.begin(), there.end(), part) != there.end();
      });
    } else {
      Remove(journal());
    }
    left_ = missing_.size();
  }

  [[nodiscard]] const std::vector<Part>& missing() const { return missing_; }

  Result<void> Store(const Part& part, std::span<const char> content) {
    const Fd file(::open(PartialOf(path_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    // What the journal tells of has to be there after a crash of the machine, too.
    if (!file.valid() || !WriteAt(file.get(), part.offset, content) || ::fdatasync(file.get()) != 0)
      return CacheFailed(path_);
    const std::lock_guard lock(mutex_);
    LOCKSTEP_TRY(Note(part));
    return --left_ == 0 ? Finish() : Result<void>();
  }

  Result<void> Finish() {
    if (std::rename(PartialOf(path_).c_str(), path_.c_str()) != 0) return CacheFailed(path_);
    Remove(journal());
    return {};
  }

 private:
  [[nodiscard]] std::string journal() const { return path_ + ".parts"; }

  Result<void> Note(const Part& part) {
    const Fd file(::open(journal().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const std::string line = std::to_string(part.offset) + " " + std::to_string(part.bytes) + "\n";
    if (!file.valid() || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return CacheFailed(path_);
    return {};
  }

  const std::string path_;
  std::vector<Part> missing_;
  std::mutex mutex_;
  std::size_t left_ = 0;  // GUARDED_BY(mutex_)
};

Result<void> StoreWhole(const std::string& path, std::span<const char> content) {
  const Fd file(::open(PartialOf(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid() || !WriteAt(file.get(), 0, content)) return CacheFailed(path);
  return std::rename(PartialOf(path).c_str(), path.c_str()) == 0 ? Result<void>() : CacheFailed(path);
}

struct Piece {
  const RemoteObject* object = nullptr;
  Part part;
  LargeFile* file = nullptr;  // absent: the part is all of it
};

class Fetcher {
 public:
  Fetcher(RemoteObjects& source, const std::string& folder, const FetchOptions& options)
      : source_(source), folder_(folder), options_(options) {}

  // Nothing that is there is looked at: `objects` are those that are missing.
  Result<void> Run(const std::vector<RemoteObject>& objects) {
    for (const RemoteObject& object : objects) LOCKSTEP_TRY(Add(object));
    {
      std::vector<std::jthread> threads;
      const std::size_t most = std::min(pieces_.size(), static_cast<std::size_t>(options_.threads));
      for (std::size_t i = 0; i < most; ++i) threads.emplace_back([this] { Work(); });
    }
    const std::lock_guard lock(mutex_);
    return failure_.has_value() ? Result<void>(*failure_) : Result<void>();
  }

 private:
  Result<void> Add(const RemoteObject& object) {
    const std::string path = folder_ + "/" + object.name;
    std::error_code error;
    fs::create_directories(fs::path(path).parent_path(), error);
    if (error) {
      errno = error.value();
      return CacheFailed(path);
    }
    std::vector<Part> parts = PartsOf(object.bytes, options_.part_bytes);
    if (parts.size() == 1) {
      pieces_.push_back({&object, parts.front()});
      return {};
    }
    LargeFile& file = *files_.emplace_back(std::make_unique<LargeFile>(path, std::move(parts)));
    for (const Part& part : file.missing()) pieces_.push_back({&object, part, &file});
    return file.missing().empty() ? file.Finish() : Result<void>();
  }

  void Work() {
    std::vector<char> buffer(static_cast<std::size_t>(options_.part_bytes));
    while (!failed_) {
      const std::size_t index = next_++;
      if (index >= pieces_.size()) return;
      const Result<void> stored = FetchPiece(pieces_[index], buffer);
      if (!stored.ok()) Fail(stored.error());
    }
  }

  Result<void> FetchPiece(const Piece& piece, std::span<char> buffer) {
    const std::span<char> content = buffer.first(static_cast<std::size_t>(piece.part.bytes));
    if (!content.empty()) {
      LOCKSTEP_TRY(WithRetries<void>(
          options_, [&] { return source_.Read(piece.object->name, piece.part.offset, content); }));
    }
    LOCKSTEP_TRY(piece.file != nullptr ? piece.file->Store(piece.part, content)
                                       : StoreWhole(folder_ + "/" + piece.object->name, content));
    options_.fetched(piece.part.bytes);
    return {};
  }

  void Fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_.has_value()) failure_ = error;
    failed_ = true;
  }

  RemoteObjects& source_;
  const std::string& folder_;
  const FetchOptions& options_;
  std::vector<std::unique_ptr<LargeFile>> files_;
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::optional<Error> failure_;  // GUARDED_BY(mutex_); the first
};

template <typename T>
bool TakeNumber(std::string_view& text, char end, T& value) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at == text.data() + text.size() || *at != end) return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()) + 1);
  return true;
}

}  // namespace

std::vector<Part> PartsOf(int64_t bytes, int64_t part_bytes) {
  std::vector<Part> parts;
  for (int64_t offset = 0; offset < bytes || offset == 0; offset += part_bytes)
    parts.push_back({offset, std::min(part_bytes, bytes - offset)});
  return parts;
}

std::vector<Part> PartsInJournal(std::string_view journal) {
  std::vector<Part> parts;
  for (Part part; TakeNumber(journal, ' ', part.offset) && TakeNumber(journal, '\n', part.bytes);)
    parts.push_back(part);
  return parts;
}

std::optional<Milliseconds> PauseBeforeRetry(int failures) {
  if (failures >= kMostTries) return std::nullopt;
  return kFirstPause * (1 << (failures - 1));
}

std::vector<RemoteObject> MissingIn(const std::string& folder, const std::vector<RemoteObject>& objects) {
  std::vector<RemoteObject> missing;
  for (const RemoteObject& object : objects) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(folder + "/" + object.name, error);
    if (error || bytes != static_cast<uintmax_t>(object.bytes)) missing.push_back(object);
  }
  return missing;
}

Result<void> Fetch(RemoteObjects& source, const std::vector<RemoteObject>& objects, const std::string& folder,
                   const FetchOptions& options) {
  return Fetcher(source, folder, options).Run(objects);
}

}  // namespace lockstep::data
