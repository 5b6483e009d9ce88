#pragma once
// Lockstep's requests to object stores: for checkpoints, which are written and read, and for training data,
// which is read in ranges. Paths are "bucket/object". Any thread. Errors name the field and the variables of
// the caller and the remedy. kNotFound, kForbidden, kInvalidArgument; kDataLoss: the store's checksum
// differs; kUnavailable: another try may help.

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

namespace arrow {
class Status;
namespace fs {
class FileSystem;
}
}  // namespace arrow

namespace lockstep::storage {

struct StoredObject {
  std::string path;
  int64_t bytes = 0;
  // Changes when the content changes: the generation or ETag if the object was requested by name and has one,
  // else the time of its last change.
  std::string version;
  std::optional<WallTime> changed{};  // in listings: by the store's clock
};

// For Azure: Arrow creates an empty object before it writes one, and leaves an empty folder when it deletes
// the last object. An empty object there counts as not yet written.
enum class Traces { kNone, kEmptyOnes };

// For S3: Arrow's writes return at once, and it copies the data and sends it in background threads.
enum class Sending { kWhileWriting, kInBackground };

// How many bytes of an object to pass to a client that sends in the background before waiting for them. The
// window adapts so that a wait takes between one and four seconds, as far as the store's part size allows.
// This bounds what Arrow copies, and `Pace` is called only when the pieces before have been sent. Pure.
class SendWindow {
 public:
  // Counts passed bytes. Returns whether to wait now.
  [[nodiscard]] bool Fill(int64_t bytes);
  void Waited(Seconds time);

 private:
  int64_t given_ = 0;
  int64_t size_ = kPart;

  static constexpr int64_t kPart = int64_t{10} << 20;  // Arrow's part size
  static constexpr int64_t kMost = 16 * kPart;
};

// Called before each piece of an object is sent. Returns when the piece may be sent, or an error to stop
// sending.
using Pace = std::function<Result<void>(int64_t bytes)>;

class StoreClient {
 public:
  using ToError = std::function<Error(const arrow::Status&, const std::string& path)>;

  // Called by s3_client.h, gcs_client.h and azure_client.h. Shared, because Arrow's API returns it so.
  StoreClient(std::shared_ptr<arrow::fs::FileSystem> filesystem, ToError to_error,
              Traces traces = Traces::kNone, Sending sending = Sending::kWhileWriting);

  // Readers see the whole object or none. When an object is overwritten in Azure, they see the old one, then
  // none, then the new one.
  [[nodiscard]] Result<void> Put(const std::string& path, std::string_view content);
  // The same in pieces of at most `piece` bytes. Arrow combines them to parts of the store's size.
  [[nodiscard]] Result<void> PutPaced(const std::string& path, std::string_view content, int64_t piece,
                                      const Pace& pace);
  [[nodiscard]] Result<std::string> Get(const std::string& path);
  [[nodiscard]] Result<StoredObject> Find(const std::string& path);
  // Fills `target` with the bytes from `offset` on. The object must be long enough, because Arrow does not
  // report a short answer. A broken connection is an error.
  [[nodiscard]] Result<void> Read(const std::string& path, int64_t offset, std::span<char> target);
  // All objects below the folder, ordered by path; empty if there are none.
  [[nodiscard]] Result<std::vector<StoredObject>> List(const std::string& folder);
  [[nodiscard]] Result<void> Delete(const std::string& path);  // ok if it does not exist
  // For stores that keep empty folders. No other process may write into the folder meanwhile.
  [[nodiscard]] Result<void> DeleteEmptyFolder(const std::string& folder);

 private:
  std::shared_ptr<arrow::fs::FileSystem> filesystem_;
  ToError to_error_;
  Traces traces_;
  Sending sending_;
};

}  // namespace lockstep::storage
