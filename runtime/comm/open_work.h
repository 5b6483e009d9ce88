#pragma once
// Tracks the unfinished work of a Gloo group, so that an abort can end waits for it. If a connection breaks
// while a part of a message has been sent, Gloo does not wake the thread that waits for it
// (Pair::signalException in gloo/transport/tcp/pair.cc omits the buffers of its queue): without this class
// the thread would wait until the time-out of the collective.

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "runtime/common/base/result.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace lockstep::comm {

// All methods may be called from any thread.
class OpenWork {
 public:
  OpenWork();
  // Unfinished work keeps alive what it needs.
  ~OpenWork();
  OpenWork(const OpenWork&) = delete;
  OpenWork& operator=(const OpenWork&) = delete;

  // For a collective: a future that completes as the work does, or with an error when End gives the work up.
  // The tensors of such work stay alive, and no data arrives in them any more.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> FutureOf(c10d::Work& collective);
  // For a send or a receive: waits until it is done, at most `limit`. kAborted: End was called first. Throws
  // what c10d throws.
  [[nodiscard]] Result<void> Await(const c10::intrusive_ptr<c10d::Work>& message,
                                   std::chrono::milliseconds limit);
  // Call after the connections are closed: waits at most `limit` until all open work has ended by itself,
  // which takes milliseconds, and gives up the rest, including work that is started later.
  void End(std::chrono::milliseconds limit);
  // Whether collectives were given up. Each then occupies a thread of its group until its own time-out.
  [[nodiscard]] bool gave_up() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the callbacks of collectives that never end
};

}  // namespace lockstep::comm
