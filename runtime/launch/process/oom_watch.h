#pragma once
// Distinguishes a rank that the kernel's out-of-memory killer ended from one that was killed otherwise: by
// the counter `oom_kill` of this process's own cgroup, which its ranks share (cgroup v2). One thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::launch {

// Parses the content of a memory.events file; 0 if it has no such counter.
[[nodiscard]] int64_t OomKillsOf(std::string_view memory_events);

// The file of this process's cgroup; empty if there is none.
[[nodiscard]] std::string MemoryEventsFile();

class OomWatch {
 public:
  explicit OomWatch(std::string memory_events_file);
  // Whether the killer was active since the last call, or since construction.
  [[nodiscard]] bool TookSomething();

 private:
  const std::string file_;
  int64_t seen_ = 0;
};

}  // namespace lockstep::launch
