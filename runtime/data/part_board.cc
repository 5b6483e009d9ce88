#include "runtime/data/part_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::data {
namespace {

constexpr unsigned char kMissing = 0;
constexpr unsigned char kWanted = 1;
constexpr unsigned char kThere = 2;

}  // namespace

PartNumbers::PartNumbers(const std::vector<RemoteObject>& objects, int64_t part_bytes)
    : part_bytes_(part_bytes) {
  bytes_.reserve(objects.size());
  first_.reserve(objects.size() + 1);
  first_.push_back(0);
  for (const RemoteObject& object : objects) {
    bytes_.push_back(object.bytes);
    const int64_t parts = std::max<int64_t>(1, (object.bytes + part_bytes - 1) / part_bytes);
    first_.push_back(first_.back() + static_cast<std::size_t>(parts));
  }
}

Part PartNumbers::At(std::size_t number) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), number);
  const auto object = static_cast<std::size_t>(after - first_.begin()) - 1;
  const int64_t offset = static_cast<int64_t>(number - first_[object]) * part_bytes_;
  return {object, offset, std::min(part_bytes_, bytes_[object] - offset)};
}

PartNumbers::Range PartNumbers::Holding(std::size_t object, int64_t begin, int64_t end) const {
  const Range all = Of(object);
  const auto part_of = [&](int64_t offset) {
    return std::min(all.end - 1, all.begin + static_cast<std::size_t>(offset / part_bytes_));
  };
  return {part_of(begin), part_of(std::max(begin, end - 1)) + 1};
}

Result<PartBoard> PartBoard::Make(const std::string& path, std::size_t parts) {
  if (std::optional<PartBoard> there = Open(path, parts)) return std::move(*there);
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  // Allocates the blocks: on a full volume, a write to a mapped hole would end the process.
  const int failed =
      file.valid() ? ::posix_fallocate(file.get(), 0, static_cast<off_t>(sizeof(Head) + parts)) : errno;
  if (failed == 0) {
    if (std::optional<PartBoard> made = Map(std::move(file), parts)) return std::move(*made);
  }
  return Error{ErrorCode::kInvalidArgument, "spec.training.data.cache: " + path + ": " +
                                                std::strerror(failed == 0 ? errno : failed) +
                                                "; name a folder with room that the worker may write to"};
}

std::optional<PartBoard> PartBoard::Open(const std::string& path, std::size_t parts) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return std::nullopt;
  if (static_cast<std::size_t>(status.st_size) != sizeof(Head) + parts) return std::nullopt;
  return Map(std::move(file), parts);
}

std::optional<PartBoard> PartBoard::Map(Fd file, std::size_t parts) {
  const std::size_t bytes = sizeof(Head) + parts;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return std::nullopt;
  return PartBoard(std::move(file), memory, bytes);
}

PartBoard::PartBoard(PartBoard&& other) noexcept
    : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}

PartBoard::~PartBoard() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

unsigned char& PartBoard::At(std::size_t part) const {
  return static_cast<unsigned char*>(memory_)[sizeof(Head) + part];
}

// Acquires what SetThere releases: the bytes of the part.
bool PartBoard::IsThere(std::size_t part) const { return std::atomic_ref(At(part)).load() == kThere; }

bool PartBoard::IsWanted(std::size_t part) const { return std::atomic_ref(At(part)).load() == kWanted; }

void PartBoard::SetThere(std::size_t part) { std::atomic_ref(At(part)).store(kThere); }

void PartBoard::SetMissing(std::size_t part) {
  unsigned char was = kThere;
  std::atomic_ref(At(part)).compare_exchange_strong(was, kMissing);
}

void PartBoard::Want(const std::vector<std::size_t>& parts) {
  for (const std::size_t part : parts) {
    unsigned char was = kMissing;
    std::atomic_ref(At(part)).compare_exchange_strong(was, kWanted);
  }
  std::atomic_ref(head().requests).fetch_add(1);
}

uint64_t PartBoard::requests() const { return std::atomic_ref(head().requests).load(); }

bool PartBoard::changed() const { return std::atomic_ref(head().changed).load() != 0; }

void PartBoard::SetChanged() { std::atomic_ref(head().changed).store(1); }

}  // namespace lockstep::data
