#include "runtime/launch/oom_watch.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/common/base/file.h"

namespace lockstep::launch {
namespace {

// The rest of the line of `text` that begins with `start`; empty if there is none.
std::string LineAfter(std::string_view text, std::string_view start) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(start)) return std::string(line.substr(start.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return "";
}

int64_t ReadKills(const std::string& file) {
  const Result<std::string> text = ReadFile(file);
  return text.ok() ? OomKillsOf(*text) : 0;
}

}  // namespace

int64_t OomKillsOf(std::string_view memory_events) {
  return std::strtoll(LineAfter(memory_events, "oom_kill ").c_str(), nullptr, 10);
}

std::string MemoryEventsFile() {
  const Result<std::string> groups = ReadFile("/proc/self/cgroup");
  const std::string own = groups.ok() ? LineAfter(*groups, "0::") : "";
  // A container sees its own cgroup as the root of the mount, whatever path the kernel reports.
  for (const std::string& folder : {"/sys/fs/cgroup" + own, std::string("/sys/fs/cgroup")}) {
    std::string file = folder + "/memory.events";
    if (ReadFile(file).ok()) return file;
  }
  return "";
}

OomWatch::OomWatch(std::string memory_events_file)
    : file_(std::move(memory_events_file)), seen_(ReadKills(file_)) {}

bool OomWatch::TookSomething() {
  const int64_t now = ReadKills(file_);
  return now > std::exchange(seen_, now);
}

}  // namespace lockstep::launch
