#pragma once
// A data set of a remote store as a folder of this machine: what its format needs is copied into the cache
// before the first step, once for all processes that share the cache, and read from there.
//
//   CACHE/bucket/folder@VERSION/train.csv    VERSION stands for names, sizes and versions of all its objects
//   CACHE/bucket/folder@VERSION.lock         held alone by whoever fetches, together by those that train on
//   it

#include <functional>
#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/data/fetch.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

struct LocalCopy {
  std::string folder;
  Fd in_use;  // as long as it is open, nobody removes the folder
};

struct CopyOptions {
  FetchOptions fetch;
  // Whenever something was fetched, by this process or by the one that it waits for; at most once a second.
  std::function<void()> alive = [] {};
  // So long another process may fetch without a part of it becoming ready.
  Seconds longest_silence{300};
};

// Objects as they are called below a folder with this version, and nothing that leads out of it. Pure.
[[nodiscard]] bool IsPlainName(std::string_view name);
// The same for the same objects only. Pure.
[[nodiscard]] std::string VersionOf(const std::vector<RemoteObject>& objects);

// Looks at the objects again once all are there: one that has changed meanwhile is refused (kConflict).
// Copies of other versions that nobody uses are removed. kInvalidArgument where an object or room in the
// cache is missing, kCancelled where it was stopped, else what the store says.
[[nodiscard]] Result<LocalCopy> MakeLocalCopy(const api::DataSpec& spec, RemoteObjects& source,
                                              const CopyOptions& options);

}  // namespace lockstep::data
