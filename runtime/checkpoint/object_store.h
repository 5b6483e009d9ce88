#pragma once
// Where checkpoints live: a flat space of named objects below one URI. Any thread. Errors name
// spec.checkpoint.uri (of a job) and say what would be right; kUnavailable where another try may help, after
// the store's own bounded retries.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct ObjectInfo {
  std::string name;  // relative to the store's URI
  int64_t bytes = 0;
  std::optional<WallTime> changed{};  // by the store's clock, to the second or finer
};

// Asked before each piece of an object is sent: returns once it may be, or why the rest is not to be.
using Pace = std::function<Result<void>(int64_t bytes)>;
// The largest piece.
inline constexpr int64_t kPacedBytes = int64_t{1} << 20;

// Whether nobody puts the object of this name any more.
using IsOrphan = std::function<bool(const std::string& name)>;

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // A reader sees the whole object or none.
  [[nodiscard]] virtual Result<void> Put(const std::string& name, std::string_view content) = 0;
  // The same in pieces. One that `pace` ends leaves no object.
  [[nodiscard]] virtual Result<void> PutPaced(const std::string& name, std::string_view content,
                                              const Pace& pace) {
    LOCKSTEP_TRY(pace(static_cast<int64_t>(content.size())));
    return Put(name, content);
  }
  [[nodiscard]] virtual Result<std::string> Get(const std::string& name) = 0;
  // Fills `target` with what begins at `offset`, of an object that is as long; what is read of a shorter one
  // may be an error, or wrong.
  [[nodiscard]] virtual Result<void> Read(const std::string& name, int64_t offset,
                                          std::span<char> target) = 0;
  // Every object below the URI, in order of name; empty where there are none.
  [[nodiscard]] virtual Result<std::vector<ObjectInfo>> List() = 0;
  [[nodiscard]] virtual Result<void> Delete(const std::string& name) = 0;  // ok where it does not exist
  // Ends uploads that a Put began and neither completed nor ended, as that of a process that was killed: they
  // are no objects, but take room. Returns how many; those that no longer count by themselves are none.
  // kForbidden, kUnsupported: they stay, until the store's own rules remove them.
  [[nodiscard]] virtual Result<int> AbortUploads(const IsOrphan&) { return 0; }
  [[nodiscard]] virtual std::string UriOf(const std::string& name) const = 0;
};

// Reaches the store and writes (and deletes) an object of its own once, so that a wrong bucket or
// credential is found before training begins, within about 5 s (minutes where a server of Google or Azure is
// silent): kInvalidArgument (no such scheme, no credentials), kNotFound, kForbidden. One that does not answer
// is opened all the same: it may come back.
// file:///folder (made if absent), or s3://bucket/prefix, gs://bucket/prefix or
// abfs://container@account.dfs.core.windows.net/prefix with credentials and endpoint from the environment
// (runtime/storage/s3_settings.h, gcs_settings.h, azure_settings.h).
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenObjectStore(const std::string& uri);

// Of a command, for what is stored already: opening makes and writes nothing, and a folder has to exist.
// Errors name the URI and the environment: there is no manifest, and no Secret.
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenForCommand(const std::string& uri);

// Whose store it is decides what opening does and what errors say.
enum class StoreUser { kJob, kCommand };
[[nodiscard]] std::string FieldOf(StoreUser user);  // that holds the URI

// Writes an object and deletes it again: what implementations do when they open for a job. A store that does
// not answer is logged, and no error.
[[nodiscard]] Result<void> CheckWritable(ObjectStore& store);

}  // namespace lockstep::checkpoint
