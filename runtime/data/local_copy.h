#pragma once
// A data set of a remote store as a folder of this machine, one for all processes that share the cache.
//
//   CACHE/bucket/folder@VERSION/train.csv    VERSION stands for names, sizes and versions of all its objects
//   CACHE/bucket/folder@VERSION/.parts       which parts are there; held by whoever fetches
//   CACHE/bucket/folder@VERSION.lock         held together by all who use the folder, alone to remove it
//
// What is mapped, or read file by file, is fetched in the background while it is read: who needs a part waits
// for that part. What a format parses as a whole is there when Open returns.

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
  FetchOptions fetch;  // its retries are those of Open; a reader that waits later is not stopped
  // At most once a second while somebody waits for what is fetched, by whichever process. Any thread.
  std::function<void()> alive = [] {};
  // So long nothing may arrive.
  Seconds longest_silence{300};
};

// Of one object; of an image all of it.
struct Stretch {
  std::string object;
  int64_t offset = 0;
  int64_t bytes = std::numeric_limits<int64_t>::max();
};

class LocalCopy {
 public:
  class State;

  // kInvalidArgument where an object or room in the cache is missing, kConflict where an object changed
  // meanwhile, kCancelled where it was stopped, else what the store says.
  [[nodiscard]] static Result<std::unique_ptr<LocalCopy>> Open(const api::DataSpec& spec,
                                                               std::unique_ptr<RemoteObjects> source,
                                                               const CopyOptions& options);
  explicit LocalCopy(std::unique_ptr<State> state);
  ~LocalCopy();  // no longer fetches; what is there stays

  [[nodiscard]] const std::string& folder() const;
  [[nodiscard]] const std::vector<RemoteObject>& objects() const;
  [[nodiscard]] Fd InUse() const;  // as long as it is open, nobody removes the folder

  // Asks for all of them and returns when all are there; errors as of Open. Any thread.
  [[nodiscard]] Result<void> WaitFor(std::span<const Stretch> stretches);
  // For batches: throws ErrorException; kAborted where another try may help, which the next round is.
  void Need(std::span<const Stretch> stretches);
  // The file of an object of which some part is there, by whichever name it has yet. As open(2) fails.
  [[nodiscard]] Fd OpenFile(const std::string& object) const;

 private:
  std::unique_ptr<State> state_;
};

// How the files of a data set are read.
struct FileAccess {
  std::shared_ptr<LocalCopy> copy{};  // fetches them; shared by both sets; absent: they are nobody's copy
  Retries retries{};                  // of a batch
};

}  // namespace lockstep::data
