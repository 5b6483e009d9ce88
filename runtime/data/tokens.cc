#include "runtime/data/tokens.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/data/bad_path.h"

namespace lockstep::data {
namespace {

// A file in memory, read only.
class MappedFile {
 public:
  static Result<MappedFile> Map(const Fd& file, const std::string& path) {
    struct stat status {};
    if (!file.valid() || ::fstat(file.get(), &status) != 0)
      return BadPath(path + " cannot be read", "check its permissions");
    const auto bytes = static_cast<std::size_t>(status.st_size);
    if (bytes == 0) return BadPath(path + " is empty", "replace the file");
    void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return BadPath(path + " cannot be mapped", "check the memory of the container");
    return MappedFile(static_cast<const unsigned char*>(memory), bytes);
  }
  MappedFile(MappedFile&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    // munmap takes a pointer to what is not const.
    if (memory_ != nullptr) ::munmap(const_cast<unsigned char*>(memory_), bytes_);
  }

  [[nodiscard]] std::span<const unsigned char> bytes() const { return {memory_, bytes_}; }

 private:
  MappedFile(const unsigned char* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  const unsigned char* memory_;
  std::size_t bytes_;
};

struct TokensFile {
  std::string folder;
  std::string name;
  std::shared_ptr<LocalCopy> copy;  // absent: of a folder that is nobody's copy; else shared by both sets

  [[nodiscard]] std::string path() const { return folder + "/" + name; }

  [[nodiscard]] bool IsThere() const {
    if (copy == nullptr) {
      std::error_code error;  // without it what may not be looked at throws
      return std::filesystem::is_regular_file(path(), error);
    }
    return std::any_of(copy->objects().begin(), copy->objects().end(),
                       [this](const RemoteObject& object) { return object.name == name; });
  }

  [[nodiscard]] Result<Fd> Open() const {
    if (copy == nullptr) return Fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
    // With its first part it has its full size.
    LOCKSTEP_TRY(copy->WaitFor(std::array{Stretch{.object = name, .bytes = 1}}));
    return copy->OpenFile(name);
  }
};

enum class Width { kByte = 1, kTwoBytes = 2 };

class TokensDataset final : public Dataset {
 public:
  TokensDataset(TokensFile source, MappedFile file, Width width, int64_t length, int64_t vocabulary)
      : source_(std::move(source)),
        file_(std::move(file)),
        width_(static_cast<int64_t>(width)),
        length_(length),
        vocabulary_(vocabulary) {}

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(file_.bytes().size()) / width_; }
  // The last token of a sample is the first of the next one's: it has to be there as a target.
  [[nodiscard]] int64_t size() const override { return (tokens() - 1) / length_; }
  [[nodiscard]] int64_t classes() const override { return vocabulary_; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return {length_}; }

  [[nodiscard]] Batch Get(std::span<const int64_t> ids) const override {
    if (source_.copy != nullptr) WaitFor(ids);
    const auto count = static_cast<int64_t>(ids.size());
    Batch batch{at::empty({count, length_}, at::kLong), at::empty({count, length_}, at::kLong)};
    auto* inputs = batch.inputs.data_ptr<int64_t>();
    auto* targets = batch.targets.data_ptr<int64_t>();
    for (const int64_t id : ids) {
      int64_t token = TokenAt(id * length_);
      for (int64_t place = 1; place <= length_; ++place) {
        *inputs++ = token;
        token = TokenAt(id * length_ + place);
        *targets++ = token;
      }
    }
    return batch;
  }

 private:
  void WaitFor(std::span<const int64_t> ids) const {
    std::vector<Stretch> stretches;
    for (const int64_t id : ids)
      stretches.push_back({source_.name, id * length_ * width_, (length_ + 1) * width_});
    source_.copy->Need(stretches);
  }

  [[nodiscard]] int64_t TokenAt(int64_t place) const {
    const unsigned char* at = file_.bytes().data() + place * width_;
    const int64_t token = width_ == 1 ? *at : *at + 256 * *(at + 1);
    if (token >= vocabulary_) {
      throw std::out_of_range(
          source_.path() + ": token " + std::to_string(token) + " at byte " + std::to_string(place * width_) +
          " is not below spec.training.model.gpt.vocabularySize, " + std::to_string(vocabulary_));
    }
    return token;
  }

  const TokensFile source_;
  const MappedFile file_;
  const int64_t width_;
  const int64_t length_;
  const int64_t vocabulary_;
};

Result<std::unique_ptr<Dataset>> Open(const TokensFile& source, Width width, int64_t length,
                                      int64_t vocabulary) {
  const std::string path = source.path();
  LOCKSTEP_TRY(const Fd opened, source.Open());
  LOCKSTEP_TRY(MappedFile file, MappedFile::Map(opened, path));
  if (file.bytes().size() % static_cast<std::size_t>(width) != 0)
    return BadPath(path + " has an odd number of bytes", "tokens of a .bin file have two bytes each");
  auto tokens = std::make_unique<TokensDataset>(source, std::move(file), width, length, vocabulary);
  if (tokens->size() == 0) {
    return BadPath(
        path + " has " + std::to_string(tokens->tokens()) + " tokens",
        "one sample takes spec.training.model.gpt.contextLength and one more, " + std::to_string(length + 1));
  }
  return std::unique_ptr<Dataset>(std::move(tokens));
}

}  // namespace

Result<Datasets> OpenTokens(const std::string& folder, int64_t length, int64_t vocabulary,
                            const std::shared_ptr<LocalCopy>& copy) {
  for (const auto& [ending, width] : {std::pair(".bin", Width::kTwoBytes), std::pair(".txt", Width::kByte)}) {
    const TokensFile train{folder, std::string("train") + ending, copy};
    if (!train.IsThere()) continue;
    Datasets sets;
    LOCKSTEP_TRY(sets.train, Open(train, width, length, vocabulary));
    LOCKSTEP_TRY(sets.test, Open({folder, std::string("val") + ending, copy}, width, length, vocabulary));
    return sets;
  }
  return BadPath(
      folder + " has neither train.bin nor train.txt",
      "format tokens needs train.bin and val.bin (16-bit numbers), or train.txt and val.txt (bytes), in "
      "that folder");
}

}  // namespace lockstep::data
