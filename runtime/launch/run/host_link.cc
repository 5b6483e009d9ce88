#include "runtime/launch/run/host_link.h"

#include <chrono>
#include <utility>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kInterval = 500ms;
constexpr auto kTimeout = 5s;

ErrorCode CodeOf(int status) {
  switch (status) {
    case 400: return ErrorCode::kInvalidArgument;
    case 401: return ErrorCode::kUnauthorized;
    default: return ErrorCode::kUnavailable;
  }
}

}  // namespace

HostLink::HostLink(http::HttpTransport& transport, MachineReport first, OnAnswer on_answer)
    : transport_(transport),
      on_answer_(std::move(on_answer)),
      report_(std::move(first)),
      thread_([this](std::stop_token stop) { Run(stop); }) {}

void HostLink::Report(const MachineReport& report) {
  {
    const MutexLock lock(mutex_);
    report_ = report;
    is_new_ = true;
  }
  changed_.notify_one();
}

void HostLink::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    MachineReport report;
    {
      const MutexLock lock(mutex_);
      report = report_;
      is_new_ = false;
    }
    Result<MachineAnswer> answer = Send(report, stop);
    if (stop.stop_requested()) return;
    const bool failed = !answer.ok();
    on_answer_(std::move(report), std::move(answer));
    MutexLock lock(mutex_);
    // While machine 0 does not answer, new reports do not shorten the interval.
    changed_.wait_for(lock, stop, kInterval, [&]() LOCKSTEP_REQUIRES(mutex_) { return is_new_ && !failed; });
  }
}

Result<MachineAnswer> HostLink::Send(const MachineReport& report, const std::stop_token& stop) {
  const http::Request request{.method = "POST",
                              .target = std::string(kMachinePath),
                              .body = DumpJson(MessageToJson(report)),
                              .timeout = kTimeout};
  LOCKSTEP_TRY(const http::Response response, transport_.Send(request, stop));
  const auto json = ParseJson(response.body);
  if (response.status == 200 && json.ok()) return MessageFromJson<MachineAnswer>(*json);
  const std::string reason = json.ok() ? StringAt(*json, {"error"}) : "";
  return Error{CodeOf(response.status), std::to_string(response.status) + " " + reason};
}

}  // namespace lockstep::launch
