#pragma once
// A namespace of the control plane, the operator that looks after it, and what a Deployment does there:
// another operator in place of a dead one, a second leader beside a paused one. Any thread.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "operator/kube/client_config.h"
#include "operator/process.h"
#include "runtime/common/base/clock.h"
#include "tests/integration/operator/fault_transport.h"
#include "tests/integration/operator/test_job.h"

namespace lockstep::testing {

// Of a step. It ends a hang: a busy machine takes long for each of the hundreds of steps.
constexpr Milliseconds kDeadline{300'000};

// On the API server, by a kubeconfig.
struct Account {
  explicit Account(const std::string& kubeconfig);

  const SystemClock clock;
  const kube::ClientConfig config;
  const std::unique_ptr<http::HttpTransport> transport;
};

// The whole operator in threads of this process.
class RunningOperator {
 public:
  RunningOperator(const Account& account, const std::string& name_space, WriteLedger& ledger);
  ~RunningOperator();
  RunningOperator(const RunningOperator&) = delete;
  RunningOperator& operator=(const RunningOperator&) = delete;

  void Start() { thread_ = std::jthread(start_); }
  // As kill -9: not one more request.
  void Kill();

  FaultTransport network;

 private:
  OperatorConfig config_;
  std::function<void(const std::stop_token&)> start_;
  std::jthread thread_;  // last: joins before the rest goes
};

class Site {
 public:
  Site(const Account& admin, const Account& operators, const std::string& name);

  FaultTransport& network();
  // Where one dies from now on, the caches of its successor begin with this version.
  void RememberThePast(std::function<std::string()> version);
  void Tend();
  [[nodiscard]] bool has_paused();
  // The paused one wakes up past its lease: what it had begun to send goes out, and no more.
  [[nodiscard]] bool EndPause();

  TestNamespace home;
  WriteLedger ledger;

 private:
  void Begin();  // requires mutex_

  const Account& operators_;
  std::mutex mutex_;
  // All GUARDED_BY(mutex_).
  std::function<std::string()> past_;
  std::unique_ptr<RunningOperator> paused_;
  std::unique_ptr<RunningOperator> running_;
};

}  // namespace lockstep::testing
