#pragma once
// A TCP socket that already listens: a rank opens one before it says Ready, so that the port it announces for
// the round's store is its own from then on. Moves between threads, used by one at a time.

#include <string>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::comm {

class Listener {
 public:
  // On `address` (numeric) and a port of the system's choice; an empty address means every interface.
  [[nodiscard]] static Result<Listener> Open(const std::string& address);

  [[nodiscard]] int port() const { return port_; }
  // Gives the descriptor away; the new owner closes it.
  [[nodiscard]] int Release() { return fd_.Release(); }

 private:
  Listener(Fd fd, int port) : fd_(std::move(fd)), port_(port) {}

  Fd fd_;
  int port_;
};

}  // namespace lockstep::comm
