#include "runtime/launch/program/program_checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 10'000;
constexpr std::size_t kMostStepDigits = 15;
constexpr std::string_view kTrainerPrefix = "checkpoint-";
// transformers/trainer_jit_checkpoint.py removes it last.
constexpr const char* kTrainerIsWriting = "checkpoint-is-incomplete.txt";
// The shortest record at the end of a ZIP archive; torch.save writes no comment after it.
constexpr std::streamoff kZipEndBytes = 22;

// When a file was last changed; nothing if there is no such file.
std::optional<WallTime> TimeOf(const fs::path& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) return std::nullopt;
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(found.st_mtim.tv_sec) + std::chrono::nanoseconds(found.st_mtim.tv_nsec)));
}

int64_t NumberIn(std::string_view digits) {
  digits = digits.substr(0, std::min(digits.find_first_not_of("0123456789"), digits.size()));
  int64_t number = -1;
  if (digits.size() <= kMostStepDigits) std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

int64_t StepIn(std::string_view name) {
  for (const std::string_view word : {"step", "iter"}) {
    const auto at = name.rfind(word);
    if (at == std::string_view::npos) continue;
    std::string_view rest = name.substr(at + word.size());
    if (!rest.empty() && std::string_view("=_-.").find(rest.front()) != std::string_view::npos)
      rest.remove_prefix(1);
    if (const int64_t step = NumberIn(rest); step >= 0) return step;
  }
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? NumberIn(name) : -1;
}

char LastByte(std::ifstream& file) {
  file.seekg(-1, std::ios::end);
  return static_cast<char>(file.get());
}

// The file is written in one go; a part of it does not end with its last brace.
bool EndsAsJson(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  char last = LastByte(file);
  if (last == '\n') {
    file.seekg(-2, std::ios::end);
    last = static_cast<char>(file.get());
  }
  return file.good() && last == '}';
}

// An archive is complete when it has the record at its end, another file when it has settled.
bool IsComplete(const fs::path& path, bool has_settled) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> mark{};
  file.read(mark.data(), mark.size());
  if (!file.good() || std::string_view(mark.data(), mark.size()) != "PK\3\4") return has_settled;
  file.seekg(-kZipEndBytes, std::ios::end);
  file.read(mark.data(), mark.size());
  return file.good() && std::string_view(mark.data(), mark.size()) == "PK\5\6";
}

bool IsCheckpointFile(const fs::path& path) {
  static constexpr std::array<std::string_view, 4> kEndings = {".pt", ".pth", ".ckpt", ".safetensors"};
  return std::find(kEndings.begin(), kEndings.end(), path.extension().string()) != kEndings.end();
}

bool IsNewer(const ProgramCheckpoint& one, const std::optional<ProgramCheckpoint>& other) {
  return !other.has_value() || one.time > other->time || (one.time == other->time && one.step > other->step);
}

class Search {
 public:
  explicit Search(WallTime settled) : settled_(settled) {}

  void LookAtFolder(const fs::path& folder) {
    const std::string name = folder.filename().string();
    if (name.starts_with(kTrainerPrefix)) LookAtTrainersFolder(folder, name);
    if (const auto time = TimeOf(folder / ".metadata"))
      Take({.path = folder.string(), .step = StepIn(name), .time = *time});
  }
  void LookAtFile(const fs::path& path) {
    const auto time = TimeOf(path);
    if (!time.has_value()) return;
    const ProgramCheckpoint found{.path = path.string(), .step = StepIn(path.stem().string()), .time = *time};
    if (IsNewer(found, newest_) && IsComplete(path, *time <= settled_)) newest_ = found;
  }
  [[nodiscard]] const std::optional<ProgramCheckpoint>& newest() const { return newest_; }

 private:
  void LookAtTrainersFolder(const fs::path& folder, std::string_view name) {
    const fs::path last = folder / "trainer_state.json";
    const auto time = TimeOf(last);
    if (!time.has_value()) return;
    const ProgramCheckpoint found{
        .path = folder.string(), .step = NumberIn(name.substr(kTrainerPrefix.size())), .time = *time};
    if (IsNewer(found, newest_) && EndsAsJson(last) && !TimeOf(folder / kTrainerIsWriting)) newest_ = found;
  }
  void Take(const ProgramCheckpoint& found) {
    if (IsNewer(found, newest_)) newest_ = found;
  }

  const WallTime settled_;
  std::optional<ProgramCheckpoint> newest_;
};

}  // namespace

std::optional<ProgramCheckpoint> NewestCheckpoint(const std::string& folder, WallTime settled) {
  Search search(settled);
  search.LookAtFolder(folder);
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (int i = 0; !error && entry != fs::directory_iterator() && i < kMostEntries;
       ++i, entry.increment(error)) {
    std::error_code gone;  // it may be removed meanwhile
    if (entry->is_directory(gone)) {
      search.LookAtFolder(entry->path());
    } else if (IsCheckpointFile(entry->path())) {
      search.LookAtFile(entry->path());
    }
  }
  return search.newest();
}

}  // namespace lockstep::launch
