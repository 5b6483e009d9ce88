#pragma once
// The rank's end of the socket to its supervisor: a thread reads what the supervisor says, any thread may
// answer. The supervisor's end means that this process must end, too; what then happens is the caller's
// `on_end`.

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
  // Lost where the supervisor is gone: on_end deals with that.
  void Send(const FromRank& message);

 private:
  void Read(const std::stop_token& stop, const Callbacks& callbacks);

  Fd socket_;
  Mutex send_mutex_;  // one message is one unbroken line
  std::jthread reader_;
};

}  // namespace lockstep::protocol
