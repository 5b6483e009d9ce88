#pragma once
// Copies remote objects into a folder, in parts and by several threads. What is there stays: after a crash
// only the parts that were missing are read again. A file has its name only once it is whole.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

struct Part {
  int64_t offset = 0;
  int64_t bytes = 0;

  friend bool operator==(const Part&, const Part&) = default;
};

// One after another; one of no bytes for an empty object. Pure.
[[nodiscard]] std::vector<Part> PartsOf(int64_t bytes, int64_t part_bytes);
// Which parts a journal says are on disk; what a crash cut off is left out. Pure.
[[nodiscard]] std::vector<Part> PartsInJournal(std::string_view journal);
// Before try number `failures` + 1 of the same thing; nothing after the last. Pure.
[[nodiscard]] std::optional<Milliseconds> PauseBeforeRetry(int failures);

struct FetchOptions {
  int64_t part_bytes = int64_t{8} << 20;
  int threads = 8;                                              // each holds one part in memory
  std::function<void(int64_t bytes)> fetched = [](int64_t) {};  // after each part, from any of the threads
  std::function<bool()> is_stopped = [] { return false; };
  // Waits, or returns early where the process is to stop.
  std::function<void(Milliseconds)> pause = [](Milliseconds time) { std::this_thread::sleep_for(time); };
};

// Those of which `folder` has no whole copy.
[[nodiscard]] std::vector<RemoteObject> MissingIn(const std::string& folder,
                                                  const std::vector<RemoteObject>& objects);

// Makes `objects` files of `folder`, which belongs to this version of them alone. One process at a time.
// kCancelled where it was stopped.
[[nodiscard]] Result<void> Fetch(RemoteObjects& source, const std::vector<RemoteObject>& objects,
                                 const std::string& folder, const FetchOptions& options);

// Asks again while the answer may come to be another one.
template <typename T>
[[nodiscard]] Result<T> WithRetries(const FetchOptions& options, const std::function<Result<T>()>& ask) {
  for (int failures = 1;; ++failures) {
    Result<T> answer = ask();
    if (options.is_stopped()) return Error{ErrorCode::kCancelled, "fetching training data was stopped"};
    if (answer.ok() || !answer.error().IsTransient()) return answer;
    const auto wait = PauseBeforeRetry(failures);
    if (!wait.has_value()) return answer;
    options.pause(*wait);
  }
}

}  // namespace lockstep::data
