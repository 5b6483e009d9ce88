#pragma once
// Retries for training data that is temporarily unavailable: in a store, or on a mounted file system whose
// server does not answer. Any thread.

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
  // Waits, or returns early if the process should stop.
  std::function<void(Milliseconds)> pause = [](Milliseconds time) { std::this_thread::sleep_for(time); };
  // The length of an outage that is waited out.
  Seconds patience{15};
  // Called with the reason when an outage begins, and without one when it ends. From any reading thread.
  std::function<void(const std::optional<Error>&)> store_is_away = [](const std::optional<Error>&) {};
};

// For files, which a job may read for hours before the first error: retries for at least a minute, and calls
// `alive` once a second meanwhile.
[[nodiscard]] Retries RetriesOfFiles(Retries retries, std::function<void()> alive);

// The pause after `failures` consecutive failures. Pure.
[[nodiscard]] Milliseconds PauseBeforeRetry(int failures);

// Repeats `ask` while its error is transient and patience lasts. kCancelled: the wait was stopped.
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

// For batches: throws ErrorException, with kAborted if the next round may succeed.
[[noreturn]] inline void ThrowUnreadable(const Error& error) {
  throw ErrorException({error.IsTransient() ? ErrorCode::kAborted : error.code, error.message});
}

}  // namespace lockstep::data
