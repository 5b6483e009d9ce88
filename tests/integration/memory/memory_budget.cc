#include "tests/integration/memory/memory_budget.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/common/base/result.h"

namespace lockstep::testing {
namespace {

constexpr auto kMount = "/sys/fs/cgroup";

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// Lines of /proc/self/cgroup: "4:memory:/of/this/process" in v1, "0::/of/this/process" in v2.
std::optional<std::string> OwnGroup(const std::string& controllers) {
  std::istringstream lines(Read("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (line.substr(first + 1, second - first - 1) == controllers) return line.substr(second + 1);
  }
  return std::nullopt;
}

// In kB there.
int64_t OfStatus(const std::string& field) {
  const std::string status = Read("/proc/self/status");
  const std::size_t begin = status.find(field + ":");
  LOCKSTEP_CHECK(begin != std::string::npos, field);
  return std::stoll(status.substr(begin + field.size() + 1)) * 1024;
}

}  // namespace

std::optional<MemoryGroup> MemoryGroup::Make(const std::string& name) {
  const std::string folder = "/lockstep-" + std::to_string(::getpid()) + "-" + name;
  for (const bool is_v2 : {false, true}) {
    const auto own = OwnGroup(is_v2 ? "" : "memory");
    if (!own.has_value()) continue;
    const std::string path = kMount + std::string(is_v2 ? "" : "/memory") + *own + folder;
    std::error_code refused;
    if (!std::filesystem::create_directory(path, refused)) continue;
    if (std::filesystem::exists(path + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes")))
      return MemoryGroup(path, is_v2);
    ::rmdir(path.c_str());
  }
  return std::nullopt;
}

MemoryGroup::~MemoryGroup() {
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

MemoryGroup::MemoryGroup(MemoryGroup&& other) noexcept
    : folder_(std::exchange(other.folder_, "")), is_v2_(other.is_v2_) {}

void MemoryGroup::Enter() const {
  LOCKSTEP_CHECK(Write(folder_ + "/cgroup.procs", std::to_string(::getpid())), folder_);
}

int64_t MemoryGroup::Usage() const {
  return std::stoll(Read(folder_ + (is_v2_ ? "/memory.current" : "/memory.usage_in_bytes")));
}

void MemoryGroup::Limit(int64_t bytes) const {
  const std::string text = std::to_string(bytes);
  LOCKSTEP_CHECK(Write(folder_ + (is_v2_ ? "/memory.max" : "/memory.limit_in_bytes"), text), folder_);
  // Absent where the kernel swaps nothing.
  if (is_v2_) {
    Write(folder_ + "/memory.swap.max", "0");
  } else {
    Write(folder_ + "/memory.memsw.limit_in_bytes", text);
  }
}

void MemoryGroup::Unlimit() const {
  if (!is_v2_) Write(folder_ + "/memory.memsw.limit_in_bytes", "-1");
  LOCKSTEP_CHECK(Write(folder_ + (is_v2_ ? "/memory.max" : "/memory.limit_in_bytes"), is_v2_ ? "max" : "-1"),
                 folder_);
}

MemoryBudget::MemoryBudget(const std::optional<MemoryGroup>& group) : group_(group) {
  if (group_.has_value()) group_->Enter();
}

void MemoryBudget::Allow(int64_t bytes) {
  if (group_.has_value()) group_->Limit(group_->Usage() + bytes);
  resident_ = OfStatus("VmRSS");
  LOCKSTEP_CHECK(Write("/proc/self/clear_refs", "5"), "resetting the peak");
}

int64_t MemoryBudget::TakePeak() {
  const int64_t peak = OfStatus("VmHWM") - resident_;
  if (group_.has_value()) group_->Unlimit();
  return peak;
}

}  // namespace lockstep::testing
