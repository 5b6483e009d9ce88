#pragma once
// Sends what a supervisor tells the rendezvous, in order, on a thread of its own: heartbeats at their
// interval, and Broken and Leave at once. Reports are retried until they arrive, are refused, or their
// deadline passes.

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
  // `on_answer` gets each heartbeat's answer, on the reporter's thread.
  using OnAnswer = std::function<void(int64_t round, Result<protocol::WatchAnswer> answer)>;

  Reporter(rendezvous::RendezvousClient& client, OnAnswer on_answer);
  void Send(Report report) { queue_.Push(Numbered{std::move(report), forgotten_ + 1}); }
  // Drops what was queued so far of Broken and Leave, and what is being retried.
  void Forget() { ++forgotten_; }
  // Waits until what was queued so far is sent or given up, at most `limit`.
  void Flush(std::chrono::milliseconds limit);

 private:
  struct Numbered {
    Report report;
    int64_t life = 0;  // dropped once as much has been forgotten
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
