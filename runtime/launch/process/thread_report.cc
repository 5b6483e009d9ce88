#include "runtime/launch/process/thread_report.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

// OpenMP has one thread per processor; they are all alike.
constexpr std::size_t kMostThreads = 16;

std::string OneLine(const std::string& path) {
  const Result<std::string> content = ReadFile(path);
  std::string text = content.ok() ? *content : "";
  while (text.ends_with('\n')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string StateOf(const std::string& folder) {
  const Result<std::string> status = ReadFile(folder + "/status");
  if (!status.ok()) return "gone";
  const std::size_t at = status->find("State:\t");
  return at == std::string::npos ? "" : status->substr(at + 7, status->find('\n', at) - at - 7);
}

std::string DescribeThread(const std::string& folder) {
  std::string text = OneLine(folder + "/comm") + ": " + StateOf(folder);
  for (const std::string name : {"wchan", "syscall", "stack"}) {
    const std::string content = OneLine(folder + "/" + name);
    if (!content.empty() && content != "0") text += ", " + name + " " + content;
  }
  return text;
}

}  // namespace

bool IsStopped(pid_t pid) {
  if (pid <= 0) return false;
  const std::string state = StateOf("/proc/" + std::to_string(pid));
  return state.starts_with('T') || state.starts_with('t');
}

std::string DescribeThreads(pid_t pid) {
  std::error_code error;
  std::vector<std::string> ids;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  // The process may end meanwhile.
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    ids.push_back(entry->path().filename().string());
  }
  std::sort(ids.begin(), ids.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  if (ids.size() > kMostThreads) ids.resize(kMostThreads);
  std::vector<std::string> lines;
  lines.reserve(ids.size());
  for (const std::string& id : ids) lines.push_back(DescribeThread(tasks + "/" + id));
  return Join(lines, "; ");
}

}  // namespace lockstep::launch
