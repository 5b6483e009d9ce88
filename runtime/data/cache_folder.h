#pragma once
// The folder of a copy in a cache: its locks, the space check, and the removal of older versions. Any thread.
//
//   CACHE/bucket/folder@VERSION         and folder@VERSION.lock next to it, on which users hold a shared lock

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

[[nodiscard]] int64_t BytesOf(const std::vector<RemoteObject>& objects);

// Whether each process that can map a file there sees at once what another process writes. On NFS, for
// example, another machine may write, and a page of zeros that was read too early would be cached.
[[nodiscard]] bool IsOfThisMachineAlone(const std::string& folder);

// Tries flock without blocking; returns false if another process holds the lock. `path` is for the error.
[[nodiscard]] Result<bool> TryLock(int fd, int how, const std::string& path);

// Fails if `missing` does not fit into the folder, before hours are spent on the download. `data` is for the
// error.
[[nodiscard]] Result<void> CheckRoom(const std::string& data, const std::string& folder,
                                     const std::vector<RemoteObject>& missing);

// Removes unused copies of other versions of the same data.
void RemoveOtherVersions(const std::string& folder);

}  // namespace lockstep::data
