#pragma once
// The requests to an S3 store that Lockstep makes: of checkpoints, which are written and read whole, and of
// training data, which is read in ranges. Paths are "bucket/object". Any thread. Errors name the field and
// the Secret of their user and say what would be right: kNotFound, kForbidden, kInvalidArgument (another
// region), kDataLoss where the store's own checksum differs, kUnavailable where another try may help.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/storage/s3_settings.h"

namespace lockstep::storage {

// How long one operation may take. A request ends `silence` after the last byte (curl measures an average, so
// it takes about 7 s longer).
struct S3Patience {
  double silence_seconds = 0;
  int64_t retries = 0;
  Seconds retry_window = Seconds::max();  // since the client was made; no retry begins later
};

struct S3Object {
  std::string path;
  int64_t bytes = 0;
  // Another one means other content: the ETag where the object was asked for by name and has one, else the
  // time of its last change.
  std::string version;
};

class S3Client {
 public:
  // Asks the store nothing yet.
  [[nodiscard]] static Result<S3Client> Make(const S3Settings& settings, const S3Patience& patience);
  S3Client(S3Client&&) noexcept;
  ~S3Client();

  // A reader sees the whole object or none.
  [[nodiscard]] Result<void> Put(const std::string& path, std::string_view content);
  [[nodiscard]] Result<std::string> Get(const std::string& path);
  [[nodiscard]] Result<S3Object> Find(const std::string& path);
  // Fills `target` with what begins at `offset`. The object has to be so long: Arrow says nothing of an
  // answer that is shorter. A connection that is cut is an error.
  [[nodiscard]] Result<void> Read(const std::string& path, int64_t offset, std::span<char> target);
  // Every object below, in order of path; empty where there are none.
  [[nodiscard]] Result<std::vector<S3Object>> List(const std::string& folder);
  [[nodiscard]] Result<void> Delete(const std::string& path);  // ok where it does not exist

 private:
  struct State;
  explicit S3Client(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::storage
