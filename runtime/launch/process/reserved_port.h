#pragma once
// A TCP port on which another program of this machine will listen soon. No process can bind it until it is
// released, and it is unlikely afterwards, because it is below the range from which the kernel assigns ports.
// One thread.

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
