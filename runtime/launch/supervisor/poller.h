#pragma once
// The supervisor's single open long poll: a join or a watch. Starting another one cancels it.

#include <functional>
#include <stop_token>
#include <thread>

#include "runtime/common/base/queue.h"

namespace lockstep::launch {

class Poller {
 public:
  using Poll = std::function<void(std::stop_token)>;

  ~Poller() { Stop(); }
  // Runs `poll` on a new thread after `delay`. The next Start, Stop or the destructor requests its stop
  // token.
  void Start(std::chrono::milliseconds delay, Poll poll) {
    Stop();
    thread_ = std::jthread([delay, poll = std::move(poll)](std::stop_token stop) {
      Queue<int> never;
      (void)never.PopUntil(std::chrono::steady_clock::now() + delay, stop);
      if (!stop.stop_requested()) poll(stop);
    });
  }
  void Stop() { thread_ = std::jthread(); }

 private:
  std::jthread thread_;
};

}  // namespace lockstep::launch
