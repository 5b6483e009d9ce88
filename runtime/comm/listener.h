#pragma once
// A TCP socket that already listens: a rank opens one before it reports Ready, so that the port that it
// announces for the round's store is reserved for it. May move between threads, but only one thread uses it
// at a time.

#include <string>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::comm {

class Listener {
 public:
  // Listens on `address` (numeric) and a port chosen by the system. An empty address means every interface.
  [[nodiscard]] static Result<Listener> Open(const std::string& address);

  [[nodiscard]] int port() const { return port_; }
  // Releases the descriptor; the new owner must close it.
  [[nodiscard]] int Release() { return fd_.Release(); }

 private:
  Listener(Fd fd, int port) : fd_(std::move(fd)), port_(port) {}

  Fd fd_;
  int port_;
};

}  // namespace lockstep::comm
