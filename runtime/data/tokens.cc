#include "runtime/data/tokens.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/data/bad_path.h"

namespace lockstep::data {
namespace {

// A file of the folder. It may be larger than memory, and still be downloading. Any thread.
class TokensFile {
 public:
  TokensFile(std::string folder, std::string name, FileAccess access)
      : folder_(std::move(folder)), name_(std::move(name)), access_(std::move(access)) {}

  [[nodiscard]] std::string path() const { return folder_ + "/" + name_; }

  [[nodiscard]] Result<bool> IsThere() const {
    if (access_.copy == nullptr) {
      std::error_code error;  // without it, a denied permission throws
      const bool is_there = std::filesystem::is_regular_file(path(), error);
      return MayPass(error.value()) ? Unreadable(error.value()) : Result<bool>(is_there);
    }
    const auto& objects = access_.copy->objects();
    return std::any_of(objects.begin(), objects.end(),
                       [this](const RemoteObject& object) { return object.name == name_; });
  }

  [[nodiscard]] Result<int64_t> Size() const {
    // As soon as its first part exists, the file has its full size.
    if (access_.copy != nullptr)
      LOCKSTEP_TRY(access_.copy->WaitFor(std::array{Stretch{.object = name_, .bytes = 1}}));
    struct stat status {};
    LOCKSTEP_TRY(const std::shared_ptr<const Fd> file, Opened());
    if (::fstat(file->get(), &status) != 0) return Unreadable(errno);
    return static_cast<int64_t>(status.st_size);
  }

  [[nodiscard]] Stretch StretchOf(int64_t offset, int64_t bytes) const { return {name_, offset, bytes}; }
  // For batches: waits until these bytes are downloaded (LocalCopy::Need).
  void Need(const std::vector<Stretch>& stretches) const {
    if (access_.copy != nullptr) access_.copy->Need(stretches);
  }

  // For batches: throws ErrorException.
  void Read(int64_t offset, std::span<unsigned char> content) const {
    const Result<void> read = WithRetries<void>(access_.retries, [&] { return ReadOnce(offset, content); });
    if (read.ok()) return;
    // The file was valid when it was opened, and may be valid again in the next round.
    if (read.error().code == ErrorCode::kInvalidArgument)
      ThrowUnreadable({ErrorCode::kInternal, read.error().message});
    ThrowUnreadable(read.error());
  }

 private:
  [[nodiscard]] Result<void> ReadOnce(int64_t offset, std::span<unsigned char> content) const {
    LOCKSTEP_TRY(const std::shared_ptr<const Fd> file, Opened());
    while (!content.empty()) {
      const ssize_t got = ::pread(file->get(), content.data(), content.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return NotRead(file, errno);
      if (got == 0) return BadPath(path() + " was cut", "replace the file");
      content = content.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    return {};
  }

  // After an outage, an open descriptor may remain stale: the next read opens the file again.
  [[nodiscard]] Error NotRead(const std::shared_ptr<const Fd>& file, int number) const {
    const MutexLock lock(mutex_);
    if (file_ == file) file_ = nullptr;
    return Unreadable(number);
  }

  [[nodiscard]] Error Unreadable(int number) const {
    return UnreadablePath(path(), number, "check its permissions");
  }

  // Shared, because a thread may read from it while another one drops it.
  [[nodiscard]] Result<std::shared_ptr<const Fd>> Opened() const {
    const MutexLock lock(mutex_);
    if (file_ == nullptr) {
      Fd file = access_.copy == nullptr ? Fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC))
                                        : access_.copy->OpenFile(name_);
      if (!file.valid()) return Unreadable(errno);
      file_ = std::make_shared<const Fd>(std::move(file));
    }
    return file_;
  }

  const std::string folder_;
  const std::string name_;
  const FileAccess access_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<const Fd> file_ LOCKSTEP_GUARDED_BY(mutex_);
};

enum class Width { kByte = 1, kTwoBytes = 2 };

class TokensDataset final : public Dataset {
 public:
  TokensDataset(std::unique_ptr<TokensFile> file, int64_t bytes, Width width, int64_t length,
                int64_t vocabulary)
      : file_(std::move(file)),
        width_(static_cast<int64_t>(width)),
        tokens_(bytes / width_),
        length_(length),
        vocabulary_(vocabulary) {}

  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // The last target of a sample is the first token of the next one, so one more token must exist.
  [[nodiscard]] int64_t size() const override { return (tokens_ - 1) / length_; }
  [[nodiscard]] int64_t classes() const override { return vocabulary_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return {length_}; }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    std::vector<Stretch> stretches;
    for (const int64_t id : ids) stretches.push_back(file_->StretchOf(OffsetOf(id), bytes_of_sample()));
    file_->Need(stretches);
    const auto count = static_cast<int64_t>(ids.size());
    Batch batch{at::empty({count, length_}, at::kLong), at::empty({count, length_}, at::kLong)};
    auto* inputs = batch.inputs.data_ptr<int64_t>();
    auto* targets = batch.targets.data_ptr<int64_t>();
    std::vector<unsigned char> sample(static_cast<std::size_t>(bytes_of_sample()));
    for (const int64_t id : ids) {
      file_->Read(OffsetOf(id), sample);
      int64_t token = TokenAt(sample, id, 0);
      for (int64_t place = 1; place <= length_; ++place) {
        *inputs++ = token;
        token = TokenAt(sample, id, place);
        *targets++ = token;
      }
    }
    return batch;
  }

 private:
  [[nodiscard]] int64_t OffsetOf(int64_t id) const { return id * length_ * width_; }
  [[nodiscard]] int64_t bytes_of_sample() const { return (length_ + 1) * width_; }

  [[nodiscard]] int64_t TokenAt(std::span<const unsigned char> sample, int64_t id, int64_t place) const {
    const unsigned char* at = sample.data() + place * width_;
    const int64_t token = width_ == 1 ? *at : *at + 256 * *(at + 1);
    if (token >= vocabulary_) {
      throw std::out_of_range(file_->path() + ": token " + std::to_string(token) + " at byte " +
                              std::to_string(OffsetOf(id) + place * width_) +
                              " is not below spec.training.model.gpt.vocabularySize, " +
                              std::to_string(vocabulary_));
    }
    return token;
  }

  const std::unique_ptr<const TokensFile> file_;
  const int64_t width_;
  const int64_t tokens_;
  const int64_t length_;
  const int64_t vocabulary_;
};

Result<std::unique_ptr<Dataset>> Open(std::unique_ptr<TokensFile> file, Width width, int64_t length,
                                      int64_t vocabulary) {
  const std::string path = file->path();
  LOCKSTEP_TRY(const int64_t bytes, file->Size());
  if (bytes == 0) return BadPath(path + " is empty", "replace the file");
  if (bytes % static_cast<int64_t>(width) != 0)
    return BadPath(path + " has an odd number of bytes", "tokens of a .bin file have two bytes each");
  auto tokens = std::make_unique<TokensDataset>(std::move(file), bytes, width, length, vocabulary);
  if (tokens->size() == 0) {
    return BadPath(
        path + " has " + std::to_string(tokens->tokens()) + " tokens",
        "one sample takes spec.training.model.gpt.contextLength and one more, " + std::to_string(length + 1));
  }
  return std::unique_ptr<Dataset>(std::move(tokens));
}

}  // namespace

Result<Datasets> OpenTokens(const std::string& folder, int64_t length, int64_t vocabulary,
                            const FileAccess& access) {
  for (const auto& [ending, width] : {std::pair(".bin", Width::kTwoBytes), std::pair(".txt", Width::kByte)}) {
    auto train = std::make_unique<TokensFile>(folder, std::string("train") + ending, access);
    LOCKSTEP_TRY(const bool is_there, train->IsThere());
    if (!is_there) continue;
    auto test = std::make_unique<TokensFile>(folder, std::string("val") + ending, access);
    Datasets sets;
    LOCKSTEP_TRY(sets.train, Open(std::move(train), width, length, vocabulary));
    LOCKSTEP_TRY(sets.test, Open(std::move(test), width, length, vocabulary));
    return sets;
  }
  return BadPath(
      folder + " has neither train.bin nor train.txt",
      "format tokens needs train.bin and val.bin (16-bit numbers), or train.txt and val.txt (bytes), in "
      "that folder");
}

}  // namespace lockstep::data
