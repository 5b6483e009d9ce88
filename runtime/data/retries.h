#pragma once
// Asking again for data that cannot be read for a while: of a store, or of a mounted file system whose server
// does not answer. Any thread.

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/error_exception.h"
#include "runtime/common/base/result.h"

namespace lockstep::data {

struct Retries {
  std::function<bool()> is_stopped = [] { return false; };
  // Waits, or returns early where the process is to stop.
  std::function<void(Milliseconds)> pause = [](Milliseconds time) { std::this_thread::sleep_for(time); };
  // An outage that is waited out.
  Seconds patience{15};
  // Called when an outage begins, with its reason, and without one when it ends. From any thread that reads.
  std::function<void(const std::optional<Error>&)> store_is_away = [](const std::optional<Error>&) {};
};

// Of files, which a job may read for hours before the first error: for a minute at least, and `alive` is called
// once a second meanwhile.
[[nodiscard]] Retries RetriesOfFiles(Retries retries, std::function<void()> alive);

// Before try number `failures` + 1 of the same thing. Pure.
[[nodiscard]] Milliseconds PauseBeforeRetry(int failures);

// Asks again while the answer may come to be another one. kCancelled where the wait for that was stopped.
template <typename T>
[[nodiscard]] Result<T> WithRetries(const Retries& retries, const std::function<Result<T>()>& ask) {
  Seconds paused{0};
  for (int failures = 0;; retries.pause(PauseBeforeRetry(failures))) {
    Result<T> answer = ask();
    const bool is_away = !answer.ok() && answer.error().IsTransient();
    if (is_away != (failures > 0))
      retries.store_is_away(is_away ? std::optional(answer.error()) : std::nullopt);
    if (!is_away || paused >= retries.patience) return answer;
    if (retries.is_stopped()) return Error{ErrorCode::kCancelled, "waiting for training data was stopped"};
    paused += PauseBeforeRetry(++failures);
  }
}

// For batches: throws ErrorException; kAborted where another try may help, which the next round is.
[[noreturn]] inline void ThrowUnreadable(const Error& error) {
  throw ErrorException({error.IsTransient() ? ErrorCode::kAborted : error.code, error.message});
}

}  // namespace lockstep::data
