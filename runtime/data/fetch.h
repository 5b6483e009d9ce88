#pragma once
// Copies remote objects into a folder, in parts and with several threads, parts that a reader waits for
// first. Existing parts are kept: after a crash only the missing parts are downloaded. A file gets its name
// when it is complete.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/part_board.h"
#include "runtime/data/remote_objects.h"
#include "runtime/data/retries.h"

namespace lockstep::data {

struct FetchOptions {
  int64_t part_bytes = int64_t{8} << 20;
  int threads = 8;  // each holds one part in memory
  std::function<void(int64_t bytes)> fetched = [](int64_t) {
  };  // called after each part, from any of the threads
  Retries retries{};
  // Check the version again after each part of an object with several parts: a part of another version is
  // rejected (kConflict).
  bool check_versions = false;
};

// The objects, their parts and the folder, which belongs to this version of the objects alone.
struct Copying {
  const std::vector<RemoteObject>& objects;
  const PartNumbers& numbers;  // by FetchOptions::part_bytes
  const std::string& folder;
  PartBoard& board;
};

// The file of an object with several parts until it is complete; it has its full size, with holes.
[[nodiscard]] std::string PartialOf(const std::string& path);
// The objects of which `folder` has no complete copy.
[[nodiscard]] std::vector<RemoteObject> MissingIn(const std::string& folder,
                                                  const std::vector<RemoteObject>& objects);
// Makes the board consistent with the files: after a crash of the machine, one may be newer than the other.
void Reconcile(const Copying& copying);

// Downloads the objects. Only one process may do this at a time. kCancelled: it was stopped.
[[nodiscard]] Result<void> Fetch(RemoteObjects& source, const Copying& copying, const FetchOptions& options);

}  // namespace lockstep::data
