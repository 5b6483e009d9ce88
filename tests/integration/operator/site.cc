#include "tests/integration/operator/site.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/eventually.h"

namespace lockstep::testing {
namespace {

constexpr Milliseconds kStale{100};  // until the watches tell of the present

}  // namespace

RunningOperator::RunningOperator(const kube::ClientConfig& client, http::HttpTransport& api,
                                 const std::string& name_space, WriteLedger& ledger)
    : network(api, ledger) {
  config_.name_space = name_space;
  config_.watch_namespaces = {name_space};
  config_.metrics_address = config_.rendezvous_address = "127.0.0.1:0";
  config_.rendezvous_url = "http://127.0.0.1:1";
  config_.workers = 2;
  start_ = [this, &client](const std::stop_token& stop) {
    const auto ended = RunOperator(config_, client, network, stop);
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

Site::Site(const kube::ClientConfig& client, http::HttpTransport& api, const std::string& name)
    : home(api, name), client_(client), api_(api) {
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
  running_ = std::make_unique<RunningOperator>(client_, api_, home.name, ledger);
  if (past_) running_->network.ServeThePast(past_(), kStale);
  running_->Start();
}

}  // namespace lockstep::testing
