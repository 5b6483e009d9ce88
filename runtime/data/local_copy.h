#pragma once
// A copy of a remote data set in a folder of this machine, shared by all processes that use the cache.
//
//   CACHE/bucket/folder@VERSION/train.csv    VERSION is a hash of names, sizes and versions of all its
//   objects
//   CACHE/bucket/folder@VERSION/.parts       which parts exist; locked by the process that downloads
//   CACHE/bucket/folder@VERSION.lock         locked shared by all users of the folder, exclusively to remove
//   it
//
// Formats that map their files, or read file by file, are downloaded in the background while they are used: a
// reader that needs a part waits for that part. Formats that are parsed completely at the start are complete
// when Open returns.

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/data/fetch.h"
#include "runtime/data/inventory.h"

namespace lockstep::data {

struct CopyOptions {
  FetchOptions fetch;  // its retries apply to Open; a reader that waits later cannot be stopped
  // Called at most once a second while a process waits for a download of any process. Any thread.
  std::function<void()> alive = [] {};
  // The longest time without download progress.
  Seconds longest_silence{300};
};

// A part of one object; for an image the whole object.
struct Stretch {
  std::string object;
  int64_t offset = 0;
  int64_t bytes = std::numeric_limits<int64_t>::max();
};

class LocalCopy {
 public:
  class State;

  // kInvalidArgument: an object or space in the cache is missing. kConflict: an object changed during the
  // download. kCancelled: it was stopped. Any other error is that of the store.
  [[nodiscard]] static Result<std::unique_ptr<LocalCopy>> Open(const api::DataSpec& spec,
                                                               std::unique_ptr<RemoteObjects> source,
                                                               const CopyOptions& options);
  explicit LocalCopy(std::unique_ptr<State> state);
  ~LocalCopy();  // stops downloading; existing parts are kept

  [[nodiscard]] const std::string& folder() const;
  [[nodiscard]] const std::vector<RemoteObject>& objects() const;
  [[nodiscard]] Fd InUse() const;  // as long as it is open, no process removes the folder

  // Requests all stretches and returns when they are available; errors as of Open. Any thread.
  [[nodiscard]] Result<void> WaitFor(std::span<const Stretch> stretches);
  // WaitFor for batches: throws ErrorException, with kAborted if the next round may succeed.
  void Need(std::span<const Stretch> stretches);
  // Opens the file of an object of which at least one part exists, complete or not. Fails as open(2) does.
  [[nodiscard]] Fd OpenFile(const std::string& object) const;

 private:
  std::unique_ptr<State> state_;
};

// How the files of a data set are read.
struct FileAccess {
  std::shared_ptr<LocalCopy> copy{};  // downloads them; shared by both sets; null: the files are not a copy
  Retries retries{};                  // when reading a batch
};

}  // namespace lockstep::data
