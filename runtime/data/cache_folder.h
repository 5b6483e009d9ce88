#pragma once
// The folder of a copy among the others of a cache: its locks, its room, and what makes way for it. Any
// thread.
//
//   CACHE/bucket/folder@VERSION         and, beside it, folder@VERSION.lock, which who uses it holds together

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

[[nodiscard]] int64_t BytesOf(const std::vector<RemoteObject>& objects);

// Whether every process that can map a file there sees at once what another writes. On NFS, say, another
// machine may write, and a page of zeros that was read too early would stay.
[[nodiscard]] bool IsOfThisMachineAlone(const std::string& folder);

// By flock, at once; false where another one holds it. `path` is for the error.
[[nodiscard]] Result<bool> TryLock(int fd, int how, const std::string& path);

// Whether `missing` fits into the folder, before hours are spent on what does not. `data` is for the error.
[[nodiscard]] Result<void> CheckRoom(const std::string& data, const std::string& folder,
                                     const std::vector<RemoteObject>& missing);

// Of the same data, those that nobody uses.
void RemoveOtherVersions(const std::string& folder);

}  // namespace lockstep::data
