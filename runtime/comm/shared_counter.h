#pragma once
// A number in the round's store to which the ranks add, so that each gets another part of some work. The
// store's calls have no limit: while the machine of rank 0 is cut off, they wait for many minutes. So they
// are made on a thread of the counter's own, and whoever asked can be told to wait no longer. Such a call is
// left behind with its thread; see ConnectUnlessStopped. One owner; one thread at a time.

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/comm/communicator.h"

namespace lockstep::comm {

class SharedCounter {
 public:
  SharedCounter(std::shared_ptr<RoundStore> store, std::string key);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  // What it was before `amount` was added. kCancelled: `stop`; kAborted: the store is gone, or silent for a
  // minute. After an error it is not known whether anything was added.
  [[nodiscard]] Result<int64_t> Add(int64_t amount, const std::stop_token& stop);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace lockstep::comm
