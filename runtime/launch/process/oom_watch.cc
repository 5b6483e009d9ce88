#include "runtime/launch/process/oom_watch.h"

#include <cstdlib>
#include <utility>

#include "runtime/common/base/available_memory.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

int64_t ReadKills(const std::string& file) {
  const Result<std::string> text = ReadFile(file);
  return text.ok() ? OomKillsOf(*text) : 0;
}

}  // namespace

int64_t OomKillsOf(std::string_view memory_events) {
  return std::strtoll(std::string(RestOfLine(memory_events, "oom_kill ")).c_str(), nullptr, 10);
}

std::string MemoryEventsFile() {
  const std::string folder = OwnMemoryGroup();
  return folder.empty() ? "" : folder + "/memory.events";
}

OomWatch::OomWatch(std::string memory_events_file)
    : file_(std::move(memory_events_file)), seen_(ReadKills(file_)) {}

bool OomWatch::TookSomething() {
  const int64_t now = ReadKills(file_);
  return now > std::exchange(seen_, now);
}

}  // namespace lockstep::launch
