#pragma once
// A machine's connection to machine 0: sends its newest report repeatedly, on its own thread, and passes each
// answer on.

#include <condition_variable>
#include <functional>
#include <thread>

#include "runtime/common/base/mutex.h"
#include "runtime/common/http/transport.h"
#include "runtime/launch/run/machine_report.h"

namespace lockstep::launch {

class HostLink {
 public:
  // Called on the link's thread with the report that was answered. kUnauthorized and kInvalidArgument are
  // permanent; every other error may be temporary.
  using OnAnswer = std::function<void(MachineReport report, Result<MachineAnswer> answer)>;

  HostLink(http::HttpTransport& transport, MachineReport first, OnAnswer on_answer);

  // Sends the report at once, and then at intervals.
  void Report(const MachineReport& report);

 private:
  void Run(const std::stop_token& stop);
  [[nodiscard]] Result<MachineAnswer> Send(const MachineReport& report, const std::stop_token& stop);

  http::HttpTransport& transport_;
  OnAnswer on_answer_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  MachineReport report_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_new_ LOCKSTEP_GUARDED_BY(mutex_) = true;
  std::jthread thread_;
};

}  // namespace lockstep::launch
