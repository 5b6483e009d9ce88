#pragma once
// The memory that this process and its children may still take: of the machine, and of their cgroup (version 2), which has
// the limit of the container. Any thread.

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

// From the content of /proc/meminfo.
[[nodiscard]] std::optional<double> AvailableBytesOf(std::string_view meminfo);
// From a cgroup's files: its limit less what it uses, where the files that were read last count as free. Absent if it has no limit.
[[nodiscard]] std::optional<double> AvailableBytesOfGroup(const std::string& folder);
// The smaller of both; absent if neither is known.
[[nodiscard]] std::optional<double> AvailableBytes();

}  // namespace lockstep::launch
