#pragma once
// The rank's end of the socket to its supervisor. One thread reads messages; any thread may send. When the
// supervisor closes the socket, this process must end, too: `on_end` does that.

#include <functional>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::protocol {

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(ToRank)> on_message;  // on the reading thread; must not block
    std::function<void()> on_end;            // on the reading thread; the supervisor is gone
  };

  explicit ControlLink(Fd socket) : socket_(std::move(socket)) {}
  ~ControlLink();  // stops reading without calling on_end

  void Start(Callbacks callbacks);
  // The message is lost if the supervisor is gone; on_end handles that.
  void Send(const FromRank& message);

 private:
  void Read(const std::stop_token& stop, const Callbacks& callbacks);

  Fd socket_;
  Mutex send_mutex_;  // so that a message is not interleaved with another one
  std::jthread reader_;
};

}  // namespace lockstep::protocol
