#pragma once
// Storage of checkpoints: a flat space of named objects below one URI. Any thread. Errors name
// spec.checkpoint.uri (for a job) and the remedy. kUnavailable: another try may help; the store has already
// made its own bounded retries.

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

// Called before each piece of an object is sent. Returns when the piece may be sent, or an error to stop
// sending.
using Pace = std::function<Result<void>(int64_t bytes)>;
// The maximum size of a piece.
inline constexpr int64_t kPacedBytes = int64_t{1} << 20;

// Whether no process will put the object of this name any more.
using IsOrphan = std::function<bool(const std::string& name)>;

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // A reader sees the whole object or none.
  [[nodiscard]] virtual Result<void> Put(const std::string& name, std::string_view content) = 0;
  // The same in pieces. If `pace` returns an error, no object is created.
  [[nodiscard]] virtual Result<void> PutPaced(const std::string& name, std::string_view content,
                                              const Pace& pace) {
    LOCKSTEP_TRY(pace(static_cast<int64_t>(content.size())));
    return Put(name, content);
  }
  [[nodiscard]] virtual Result<std::string> Get(const std::string& name) = 0;
  // Fills `target` with the bytes from `offset` on. The object must be long enough; reading past its end may
  // fail or return wrong bytes.
  [[nodiscard]] virtual Result<void> Read(const std::string& name, int64_t offset,
                                          std::span<char> target) = 0;
  // All objects below the URI, ordered by name; empty if there are none.
  [[nodiscard]] virtual Result<std::vector<ObjectInfo>> List() = 0;
  [[nodiscard]] virtual Result<void> Delete(const std::string& name) = 0;  // ok if it does not exist
  // Aborts uploads that a Put began and neither completed nor aborted, for example because its process was
  // killed: they are not objects, but use storage. Returns their number; uploads that the store itself
  // already discounts are not counted. kForbidden, kUnsupported: they remain until the store's own rules
  // remove them.
  [[nodiscard]] virtual Result<int> AbortUploads(const IsOrphan&) { return 0; }
  [[nodiscard]] virtual std::string UriOf(const std::string& name) const = 0;
};

// Who uses the store. It decides what opening does and what errors say.
enum class StoreUser { kJob, kCommand };
[[nodiscard]] std::string FieldOf(StoreUser user);  // the field that holds the URI

// The prefix of the objects that CheckWritable writes and removes again.
inline constexpr std::string_view kProbePrefix = "write-probe-";

// Writes an object and deletes it again. Implementations call this when they open for a job. A store that
// does not answer is logged and is not an error.
[[nodiscard]] Result<void> CheckWritable(ObjectStore& store);

}  // namespace lockstep::checkpoint
