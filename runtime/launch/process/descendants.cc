#include "runtime/launch/process/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"

namespace lockstep::launch {
namespace {

// Process ids may be reused while they are read, so that a chain of parents has no end.
constexpr int kMostGenerations = 100;
constexpr Milliseconds kPollPeriod{5};

}  // namespace

ProcessTable::Process ProcessTable::Look(pid_t pid) {
  const Result<std::string> stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.ok()) return {};
  // "7 (name) S 1 …"; the name may contain anything.
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= stat->size()) return {};
  Process found{.state = (*stat)[name_end + 2]};
  (void)std::from_chars(stat->data() + name_end + 4, stat->data() + stat->size(), found.parent);
  return found;
}

ProcessTable ProcessTable::Read() {
  ProcessTable table;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc())
      table.processes_[pid] = Look(pid);
  }
  return table;
}

std::vector<pid_t> ProcessTable::RunningBelow(pid_t ancestor, pid_t spared) const {
  std::vector<pid_t> found;
  for (const auto& [pid, process] : processes_) {
    if (pid == ancestor || process.state == 'Z') continue;
    pid_t above = pid;
    for (int i = 0; i < kMostGenerations && above > 0 && above != ancestor && above != spared; ++i) {
      const auto at = processes_.find(above);
      above = at == processes_.end() ? 0 : at->second.parent;
    }
    if (above == ancestor) found.push_back(pid);
  }
  return found;
}

bool Descends(pid_t pid, pid_t ancestor) {
  for (int i = 0; i < kMostGenerations && pid > 0; ++i) {
    if (pid == ancestor) return true;
    pid = ProcessTable::Look(pid).parent;
  }
  return false;
}

void AdoptOrphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> EndDescendants(pid_t spared, Milliseconds limit) {
  const SystemClock clock;
  const SteadyTime end = clock.Steady() + limit;
  while (true) {
    std::vector<pid_t> left = ProcessTable::Read().RunningBelow(::getpid(), spared);
    if (left.empty() || clock.Steady() >= end) return left;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPollPeriod);
  }
}

}  // namespace lockstep::launch
