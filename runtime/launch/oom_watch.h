#pragma once
// Tells a rank that the kernel's out-of-memory killer ended from one that somebody killed: by the counter
// `oom_kill` of this process's own cgroup, which its ranks share (cgroup v2). One thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::launch {

// Of the content of a memory.events file; 0 where it does not say.
[[nodiscard]] int64_t OomKillsOf(std::string_view memory_events);

// This process's own file; empty where there is none.
[[nodiscard]] std::string MemoryEventsFile();

class OomWatch {
 public:
  explicit OomWatch(std::string memory_events_file);
  // Whether the killer struck since the last call, or since the start.
  [[nodiscard]] bool TookSomething();

 private:
  const std::string file_;
  int64_t seen_ = 0;
};

}  // namespace lockstep::launch
