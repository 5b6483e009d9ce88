#pragma once
// Where a user's program takes over the conversation of its rank with the supervisor (README.md, "Programs that join"): an
// abstract unix stream socket on which it speaks protocol/rank_control.h. Accepts one connection at a time, from processes of
// this user or root. Each start of a program has a socket of its own, so that a process that an earlier program left behind
// cannot speak for a later one. Owned and used by one thread.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/launch/supervisor/rank_messages.h"

namespace lockstep::launch {

class RankSocket {
 public:
  struct Callbacks {
    std::function<void(protocol::FromRank)> on_message;  // on the thread of this object
    std::function<void()> on_end;                        // on the same: the connection is closed
  };

  [[nodiscard]] static Result<std::unique_ptr<RankSocket>> Listen(Callbacks callbacks);
  // Delivers what has arrived, then closes.
  ~RankSocket();

  // In the abstract namespace, without the leading NUL. Random, so that no other process listens there first.
  [[nodiscard]] const std::string& name() const { return name_; }
  // The message is lost if nothing is connected. Ends the connection if the program does not read.
  void Send(const protocol::ToRank& message);
  // Its process id; 0: none is connected.
  [[nodiscard]] pid_t program();

 private:
  RankSocket(std::string name, Fd listener, Fd stopped, Callbacks callbacks);
  void Serve();
  [[nodiscard]] int Connection();  // -1: none
  void Accept();
  void Read();
  void EndConnection();

  const std::string name_;
  const Fd listener_;
  const Fd stopped_;  // an eventfd
  const Callbacks callbacks_;
  RankMessages messages_;  // of the connection; owned by the thread
  Mutex mutex_;
  Fd connection_ LOCKSTEP_GUARDED_BY(mutex_);      // only the thread changes it
  pid_t program_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // at its other end
  std::jthread thread_;
};

}  // namespace lockstep::launch
