#include "runtime/launch/process/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"

namespace lockstep::launch {
namespace {

// Process ids may be reused while they are read, so that a chain of parents has no end.
constexpr int kMostGenerations = 100;
constexpr Milliseconds kPollPeriod{5};

struct ProcessState {
  char state = 'Z';
  pid_t parent = 0;
};

// One that has ended counts as a zombie without a parent.
ProcessState LookAt(pid_t pid) {
  const Result<std::string> stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.ok()) return {};
  // "7 (name) S 1 …"; the name may contain anything.
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= stat->size()) return {};
  ProcessState found{.state = (*stat)[name_end + 2]};
  (void)std::from_chars(stat->data() + name_end + 4, stat->data() + stat->size(), found.parent);
  return found;
}

std::map<pid_t, ProcessState> AllProcesses() {
  std::map<pid_t, ProcessState> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc())
      found[pid] = LookAt(pid);
  }
  return found;
}

std::vector<pid_t> RunningDescendants(pid_t spared) {
  const std::map<pid_t, ProcessState> processes = AllProcesses();
  const pid_t self = ::getpid();
  std::vector<pid_t> found;
  for (const auto& [pid, process] : processes) {
    if (pid == self || process.state == 'Z') continue;
    pid_t above = pid;
    for (int i = 0; i < kMostGenerations && above > 0 && above != self && above != spared; ++i) {
      const auto at = processes.find(above);
      above = at == processes.end() ? 0 : at->second.parent;
    }
    if (above == self) found.push_back(pid);
  }
  return found;
}

}  // namespace

bool Descends(pid_t pid, pid_t ancestor) {
  for (int i = 0; i < kMostGenerations && pid > 0; ++i) {
    if (pid == ancestor) return true;
    pid = LookAt(pid).parent;
  }
  return false;
}

void AdoptOrphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> EndDescendants(pid_t spared, Milliseconds limit) {
  const SystemClock clock;
  const SteadyTime end = clock.Steady() + limit;
  while (true) {
    std::vector<pid_t> left = RunningDescendants(spared);
    if (left.empty() || clock.Steady() >= end) return left;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPollPeriod);
  }
}

}  // namespace lockstep::launch
