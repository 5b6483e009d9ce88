#pragma once
// Sends a supervisor's reports to the rendezvous, in order, on a separate thread: heartbeats at their
// interval, Broken and Leave at once. Reports are retried until they succeed, are rejected, or their deadline
// passes.

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <variant>

#include "runtime/common/base/queue.h"
#include "runtime/common/rendezvous/client.h"

namespace lockstep::launch {

class Reporter {
 public:
  using Report = std::variant<protocol::Heartbeat, protocol::BrokenReport, protocol::LeaveRequest>;
  // `on_answer` gets the answer to each heartbeat, on the reporter's thread.
  using OnAnswer = std::function<void(int64_t round, Result<protocol::WatchAnswer> answer)>;

  Reporter(rendezvous::RendezvousClient& client, OnAnswer on_answer);
  void Send(Report report) { queue_.Push(Numbered{std::move(report), forgotten_ + 1}); }
  // Drops queued Broken and Leave reports, and those being retried.
  void Forget() { ++forgotten_; }
  // Waits at most `limit` until the queued reports are sent or given up.
  void Flush(std::chrono::milliseconds limit);

 private:
  struct Numbered {
    Report report;
    int64_t life = 0;  // the report is dropped if forgotten_ has reached this
  };
  struct FlushMark {
    std::shared_ptr<std::promise<void>> done;  // shared: the waiter may give up first
  };
  void Run(std::stop_token stop);

  rendezvous::RendezvousClient& client_;
  OnAnswer on_answer_;
  std::atomic<int64_t> forgotten_ = 0;
  Queue<std::variant<Numbered, FlushMark>> queue_;
  std::jthread thread_;
};

}  // namespace lockstep::launch
