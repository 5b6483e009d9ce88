#include "runtime/witness/page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::witness {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kErrorBytes = 256;
// The program may write anything into its page; more steps than any training takes count as these.
constexpr int64_t kStepLimit = 1'000'000'000'000;
constexpr int64_t kMagic = 0x31305353454E5457;  // "WTNESS01"
enum Word : std::size_t {
  kMagicWord,
  kPid,
  kSteps,
  kResumedStep,
  kActivity,
  kMayWaitForPeers,
  kNewestStepAt = 6,
  kNanoseconds = 8,
  kError = 16
};

Error SystemError(const char* what) {
  return {ErrorCode::kInternal, std::string(what) + ": " + std::strerror(errno)};
}

double SecondsOf(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

Result<Fd> MakeMemoryFile(const char* name, std::string_view content) {
  Fd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file.valid()) return SystemError("memfd_create");
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0) return SystemError("write");
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return file;
}

std::string PathOf(const Fd& file) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
}

Result<Page> Page::Create() {
  LOCKSTEP_TRY(Fd file, MakeMemoryFile("lockstep-witness-page"));
  if (::ftruncate(file.get(), kBytes) != 0) return SystemError("ftruncate");
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return SystemError("mmap");
  auto* const words = static_cast<int64_t*>(memory);
  words[kResumedStep] = -1;
  words[kMagicWord] = kMagic;
  return Page(std::move(file), words);
}

Page::Page(Page&& other) noexcept
    : file_(std::move(other.file_)), words_(std::exchange(other.words_, nullptr)) {}

Page::~Page() {
  if (words_ != nullptr) ::munmap(words_, kBytes);
}

std::string Page::path() const { return PathOf(file_); }

Observation Page::Read() const {
  const auto word = [this](std::size_t i) { return __atomic_load_n(words_ + i, __ATOMIC_RELAXED); };
  Observation seen{.pid = static_cast<pid_t>(word(kPid)),
                   .steps = std::min(word(kSteps), kStepLimit),
                   .resumed_step = std::min(word(kResumedStep), kStepLimit),
                   .newest_step_at = SecondsOf(word(kNewestStepAt))};
  const int64_t activity = word(kActivity);
  if (activity >= 0 && activity < static_cast<int64_t>(kActivities))
    seen.activity = static_cast<Activity>(activity);
  seen.may_wait_for_peers = word(kMayWaitForPeers) != 0;
  for (std::size_t i = 0; i < kActivities; ++i) seen.seconds.at(i) = SecondsOf(word(kNanoseconds + i));
  const char* const error = reinterpret_cast<const char*>(words_ + kError);
  seen.error.assign(error, ::strnlen(error, kErrorBytes));
  return seen;
}

}  // namespace lockstep::witness
