#pragma once
// A TCP port that another program of this machine may listen on in a moment. Nobody else gets it until it is
// released, and hardly anybody afterwards: it lies below the ports that the kernel gives to whoever asks for
// any. One thread.

#include "runtime/common/base/file.h"

namespace lockstep::launch {

class ReservedPort {
 public:
  ReservedPort() = default;
  [[nodiscard]] static Result<ReservedPort> Reserve();

  [[nodiscard]] int number() const { return number_; }

 private:
  ReservedPort(Fd socket, int number) : socket_(std::move(socket)), number_(number) {}

  Fd socket_;  // bound, not listening
  int number_ = 0;
};

}  // namespace lockstep::launch
