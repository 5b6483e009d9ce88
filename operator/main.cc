// Entry of lockstep-operator: parses flags, handles signals and loads the configuration.

#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "operator/config.h"
#include "operator/kube/exec_credentials.h"
#include "operator/process.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/common/http/cpprest_transport.h"

namespace {

constexpr int kHttpThreads = 2;
constexpr int kUsageError = lockstep::command_line::kUsageError;

// Without a limit each short-lived thread would leave an allocation arena behind.
void LimitHeaps() { ::mallopt(M_ARENA_MAX, 2); }

sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// The first signal requests an orderly end; the second ends the process at once.
void ForwardSignals(const std::stop_token& over, const sigset_t& signals, std::stop_source stop) {
  const timespec poll{.tv_sec = 0, .tv_nsec = 200'000'000};
  while (!over.stop_requested()) {
    const int number = ::sigtimedwait(&signals, nullptr, &poll);
    if (number <= 0) continue;
    if (stop.stop_requested()) std::_Exit(1);
    lockstep::log::Info("asked to end", {{"signal", number}});
    stop.request_stop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  LimitHeaps();
  lockstep::RaiseOpenFileLimit();
  const sigset_t signals = BlockSignals();  // before the first thread, so that all inherit it
  lockstep::http::InitializeHttpThreads(kHttpThreads);
  const auto parsed = lockstep::ParseConfig(argc, argv);
  if (!parsed.ok()) {
    std::fprintf(stderr, "lockstep-operator: %s\nRun `lockstep-operator --help` for usage.\n",
                 parsed.error().message.c_str());
    return kUsageError;
  }
  if (parsed->outcome == lockstep::ConfigOutcome::kExit) return 0;
  lockstep::log::SetLevel(parsed->config.log_level);
  const auto client = lockstep::kube::LoadClientConfig(
      parsed->config.kubeconfig, [](const char* name) { return lockstep::EnvOr(name, ""); });
  if (!client.ok()) {
    lockstep::log::Error("cannot set up the client of the API server",
                         {{"error", client.error().ToString()}});
    return kUsageError;
  }
  const lockstep::SystemClock clock;
  const auto api_server = lockstep::kube::MakeTransport(*client, clock);
  if (!api_server.ok()) {
    lockstep::log::Error("cannot set up the client of the API server",
                         {{"error", api_server.error().ToString()}});
    return kUsageError;
  }
  std::stop_source stop;
  const std::jthread forwarder([&](const std::stop_token& over) { ForwardSignals(over, signals, stop); });
  const auto ended = lockstep::RunOperator(parsed->config, *client, **api_server, stop.get_token());
  if (ended.ok()) return 0;
  lockstep::log::Error("operator ended", {{"error", ended.error().ToString()}});
  return 1;
}
