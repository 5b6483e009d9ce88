#pragma once
// The cgroup (version 2) of this process, which has the limit of the container, and the memory that the process and its children
// may still take: of the machine, and of the cgroup. Any thread.

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The folder of the cgroup; empty if there is none.
[[nodiscard]] std::string OwnMemoryGroup();

// From the content of /proc/meminfo.
[[nodiscard]] std::optional<double> AvailableBytesOf(std::string_view meminfo);
// From a cgroup's files: its limit less what it uses, where the files that were read last count as free. Absent if it has no limit.
[[nodiscard]] std::optional<double> AvailableBytesOfGroup(const std::string& folder);
// The smaller of both; absent if neither is known.
[[nodiscard]] std::optional<double> AvailableBytes();

}  // namespace lockstep
