#pragma once
// A connect that can be given up.

#include <memory>
#include <stop_token>

#include "runtime/comm/communicator.h"

namespace lockstep::comm {

// Runs Communicator::Connect on a separate thread, so that the caller can give up at once if the round ends
// before it began: c10d and Gloo cannot interrupt a connect. kCancelled: `stop` was requested first; the
// attempt then ends by itself in the background, possibly after the connect deadline. Meanwhile the process
// must not run the destructors of global objects: it must end with std::_Exit. Any thread.
[[nodiscard]] Result<std::shared_ptr<Communicator>> ConnectUnlessStopped(const Place& place,
                                                                         Listener listener,
                                                                         const Deadlines& deadlines,
                                                                         std::stop_token stop,
                                                                         const DeviceUse& device = {});

}  // namespace lockstep::comm
