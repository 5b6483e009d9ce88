#include "runtime/launch/supervisor/reporter.h"

#include "runtime/common/base/log.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kReportDeadline = 10s;

// Other pods depend on a Broken or Leave report, so it is retried while the rendezvous may come back.
template <typename Send, typename Wanted>
void SendUntilTaken(Send send, Wanted is_wanted, std::string_view what, std::stop_token stop) {
  const auto deadline = std::chrono::steady_clock::now() + kReportDeadline;
  auto pause = 50ms;
  Queue<int> never;
  while (!stop.stop_requested() && is_wanted()) {
    const Result<void> sent = send(stop);
    if (sent.ok()) return;
    if (!sent.error().IsTransient() || std::chrono::steady_clock::now() > deadline) {
      return log::Warning("report not accepted", {{"report", what}, {"error", sent.error().ToString()}});
    }
    (void)never.PopUntil(std::chrono::steady_clock::now() + pause, stop);
    pause = std::min<std::chrono::milliseconds>(pause * 2, 1s);
  }
}

}  // namespace

Reporter::Reporter(rendezvous::RendezvousClient& client, OnAnswer on_answer)
    : client_(client),
      on_answer_(std::move(on_answer)),
      thread_([this](std::stop_token stop) { Run(stop); }) {}

void Reporter::Flush(std::chrono::milliseconds limit) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> future = done->get_future();
  queue_.Push(FlushMark{std::move(done)});
  (void)future.wait_for(limit);
}

void Reporter::Run(std::stop_token stop) {
  while (auto item = queue_.PopUntil(std::chrono::steady_clock::time_point::max(), stop)) {
    if (const auto* mark = std::get_if<FlushMark>(&*item)) {
      mark->done->set_value();
      continue;
    }
    const auto& [report, life] = std::get<Numbered>(*item);
    const auto is_wanted = [this, life = life] { return life > forgotten_; };
    if (const auto* beat = std::get_if<protocol::Heartbeat>(&report)) {
      on_answer_(beat->round, client_.Heartbeat(*beat, stop));  // the next beat repeats a lost one
    } else if (const auto* broken = std::get_if<protocol::BrokenReport>(&report)) {
      SendUntilTaken([&](std::stop_token s) { return client_.Broken(*broken, s); }, is_wanted, "broken",
                     stop);
    } else if (const auto* leave = std::get_if<protocol::LeaveRequest>(&report)) {
      SendUntilTaken([&](std::stop_token s) { return client_.Leave(*leave, s); }, is_wanted, "leave", stop);
    }
  }
}

}  // namespace lockstep::launch
