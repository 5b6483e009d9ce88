#pragma once
// The part of gloo::Context that c10d's ProcessGroupGloo.hpp names; the wheel has the code and not the
// header. Our programs never make one.

#include <chrono>
#include <memory>

#include <gloo/transport/device.h>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};

}  // namespace gloo
