#pragma once
// The work of a Gloo group that has not ended, so that an abort can end the wait for it. Gloo wakes nobody
// who waits for a message of which a part is sent when its connection breaks (Pair::signalException in
// gloo/transport/tcp/pair.cc leaves out the buffers of its queue): without this he waits for the time-out of
// the collective.

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "runtime/common/base/result.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace lockstep::comm {

// Any thread, all of it.
class OpenWork {
 public:
  OpenWork();
  // What has not ended keeps what it needs.
  ~OpenWork();
  OpenWork(const OpenWork&) = delete;
  OpenWork& operator=(const OpenWork&) = delete;

  // For a collective: ends as the work does, or with an error when End gives the work up. The tensors of such
  // work stay alive; nothing arrives in them any more.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> FutureOf(c10d::Work& collective);
  // For a send or a receive: until it is done, at most `limit`. kAborted where End came first. Throws what
  // c10d throws.
  [[nodiscard]] Result<void> Await(const c10::intrusive_ptr<c10d::Work>& message,
                                   std::chrono::milliseconds limit);
  // Once the connections are closed: waits until all that is open has ended by itself, which takes
  // milliseconds, at most `limit`, and gives up the rest; what is started later, too.
  void End(std::chrono::milliseconds limit);
  // Of collectives, which then hold a thread of their group until their own time-out.
  [[nodiscard]] bool gave_up() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the callbacks of collectives that never end
};

}  // namespace lockstep::comm
