#pragma once
// A number in the round's store that the ranks increment to divide work among themselves. The store's calls
// have no time limit: if rank 0's machine is cut off, they block for many minutes. So they run on a thread of
// the counter, and the caller can stop waiting. A blocked call is left behind with its thread; see
// ConnectUnlessStopped. One owner; one thread at a time.

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/comm/round_store.h"

namespace lockstep::comm {

class SharedCounter {
 public:
  SharedCounter(std::shared_ptr<RoundStore> store, std::string key);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  // Returns the value before `amount` was added. kCancelled: `stop` was requested. kAborted: the store is
  // gone, or has not answered for a minute. After an error it is unknown whether the amount was added.
  [[nodiscard]] Result<int64_t> Add(int64_t amount, const std::stop_token& stop);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace lockstep::comm
