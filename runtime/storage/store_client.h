#pragma once
// The requests to an object store that Lockstep makes: of checkpoints, which are written and read whole, and
// of training data, which is read in ranges. Paths are "bucket/object". Any thread. Errors name the field and
// the variables of their user and say what would be right: kNotFound, kForbidden, kInvalidArgument, kDataLoss
// where the store's own checksum differs, kUnavailable where another try may help.

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
  // Another one means other content: the generation or ETag where the object was asked for by name and has
  // one, else the time of its last change.
  std::string version;
  std::optional<WallTime> changed{};  // where it was listed: by the store's clock
};

// Azure's: Arrow makes an object without content before it writes one, and leaves a folder without objects
// where it deletes the last one. What is empty there is taken for not yet written.
enum class Traces { kNone, kEmptyOnes };

// S3's: Arrow returns from a write at once, copies what it was given and sends it in threads of its own.
enum class Sending { kWhileWriting, kInBackground };

// How many bytes of an object to give to a client that sends in the background before waiting for them. A wait
// takes between one and four seconds where the size of the store's parts allows it. This bounds what Arrow
// copies, and `Pace` is asked only when the pieces before have been sent. Pure.
class SendWindow {
 public:
  // More bytes were given. Returns whether to wait now.
  [[nodiscard]] bool Fill(int64_t bytes);
  void Waited(Seconds time);

 private:
  int64_t given_ = 0;
  int64_t size_ = kPart;

  static constexpr int64_t kPart = int64_t{10} << 20;  // of Arrow
  static constexpr int64_t kMost = 16 * kPart;
};

// Asked before each piece of an object is sent: returns once it may be, or why the rest is not to be.
using Pace = std::function<Result<void>(int64_t bytes)>;

class StoreClient {
 public:
  using ToError = std::function<Error(const arrow::Status&, const std::string& path)>;

  // By s3_client.h, gcs_client.h and azure_client.h. Shared, as Arrow makes it so.
  StoreClient(std::shared_ptr<arrow::fs::FileSystem> filesystem, ToError to_error,
              Traces traces = Traces::kNone, Sending sending = Sending::kWhileWriting);

  // A reader sees the whole object or none (of one that is there already in Azure: the old one, none, then
  // the new one).
  [[nodiscard]] Result<void> Put(const std::string& path, std::string_view content);
  // The same in pieces of at most `piece` bytes. Arrow gathers them to the parts that the store wants.
  [[nodiscard]] Result<void> PutPaced(const std::string& path, std::string_view content, int64_t piece,
                                      const Pace& pace);
  [[nodiscard]] Result<std::string> Get(const std::string& path);
  [[nodiscard]] Result<StoredObject> Find(const std::string& path);
  // Fills `target` with what begins at `offset`. The object has to be so long: Arrow says nothing of an
  // answer that is shorter. A connection that is cut is an error.
  [[nodiscard]] Result<void> Read(const std::string& path, int64_t offset, std::span<char> target);
  // Every object below, in order of path; empty where there are none.
  [[nodiscard]] Result<std::vector<StoredObject>> List(const std::string& folder);
  [[nodiscard]] Result<void> Delete(const std::string& path);  // ok where it does not exist
  // Where a store keeps those; nobody may write into it meanwhile.
  [[nodiscard]] Result<void> DeleteEmptyFolder(const std::string& folder);

 private:
  std::shared_ptr<arrow::fs::FileSystem> filesystem_;
  ToError to_error_;
  Traces traces_;
  Sending sending_;
};

}  // namespace lockstep::storage
