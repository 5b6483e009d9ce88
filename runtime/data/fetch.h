#pragma once
// Copies remote objects into a folder, in parts and by several threads: those first for which somebody waits.
// What is there stays: after a crash only the parts that were missing are read again. A file has its name
// only once it is whole.

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
  int threads = 8;                                              // each holds one part in memory
  std::function<void(int64_t bytes)> fetched = [](int64_t) {};  // after each part, from any of the threads
  Retries retries{};
  // Ask for the version again after each part of several: a part of another one is refused (kConflict).
  bool check_versions = false;
};

// An object and its parts in a folder that belongs to this version of the objects alone.
struct Copying {
  const std::vector<RemoteObject>& objects;
  const PartNumbers& numbers;  // by FetchOptions::part_bytes
  const std::string& folder;
  PartBoard& board;
};

// Where an object of several parts lies until it is whole; in its full size, with holes.
[[nodiscard]] std::string PartialOf(const std::string& path);
// Those of which `folder` has no whole copy.
[[nodiscard]] std::vector<RemoteObject> MissingIn(const std::string& folder,
                                                  const std::vector<RemoteObject>& objects);
// Lets the board say what the files say: a crash of the machine may have kept more of one than of the other.
void Reconcile(const Copying& copying);

// Makes files of the objects. One process at a time. kCancelled where it was stopped.
[[nodiscard]] Result<void> Fetch(RemoteObjects& source, const Copying& copying, const FetchOptions& options);

}  // namespace lockstep::data
