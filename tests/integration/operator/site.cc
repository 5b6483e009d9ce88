#include "tests/integration/operator/site.h"

#include <gtest/gtest.h>

#include <utility>

#include "operator/kube/exec_credentials.h"
#include "tests/support/eventually.h"

namespace lockstep::testing {
namespace {

constexpr Milliseconds kStale{100};  // until the watches tell of the present

}  // namespace

Account::Account(const std::string& kubeconfig)
    : config(kube::LoadClientConfig(kubeconfig, [](const char*) { return std::string(); }).value()),
      transport(kube::MakeTransport(config, clock).value()) {}

RunningOperator::RunningOperator(const Account& account, const std::string& name_space, WriteLedger& ledger)
    : network(*account.transport, ledger) {
  config_.name_space = name_space;
  config_.watch_namespaces = {name_space};
  config_.metrics_address = config_.rendezvous_address = "127.0.0.1:0";
  config_.rendezvous_url = "http://127.0.0.1:1";
  config_.workers = 2;
  start_ = [this, &account](const std::stop_token& stop) {
    const auto ended = RunOperator(config_, account.config, network, stop);
    if (!ended.ok() && !network.crashed()) ADD_FAILURE() << ended.error().ToString();
  };
}

RunningOperator::~RunningOperator() {
  if (network.paused()) network.Crash();
}

void RunningOperator::Kill() {
  network.Crash();
  thread_ = {};
}

Site::Site(const Account& admin, const Account& operators, const std::string& name)
    : home(*admin.transport, name), operators_(operators) {
  Begin();
}

FaultTransport& Site::network() {
  const std::lock_guard lock(mutex_);
  return running_->network;
}

void Site::RememberThePast(std::function<std::string()> version) {
  const std::lock_guard lock(mutex_);
  past_ = std::move(version);
}

void Site::Tend() {
  const std::lock_guard lock(mutex_);
  if (running_->network.crashed()) {
    running_->Kill();
    Begin();
  }
  if (running_->network.paused() && paused_ == nullptr) {
    paused_ = std::move(running_);
    Begin();
  }
}

bool Site::has_paused() {
  const std::lock_guard lock(mutex_);
  return paused_ != nullptr || running_->network.paused();
}

bool Site::EndPause() {
  const std::lock_guard lock(mutex_);
  paused_->network.Resume();
  const bool ended = Eventually([&] { return paused_->network.crashed(); }, kDeadline);
  paused_.reset();
  return ended;
}

void Site::Begin() {
  running_ = std::make_unique<RunningOperator>(operators_, home.name, ledger);
  if (past_) running_->network.ServeThePast(past_(), kStale);
  running_->Start();
}

}  // namespace lockstep::testing
