#pragma once
// A device behind the interface of NCCL's, with a second Gloo group in NCCL's place: for ranks without a GPU,
// and for several on one.

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "runtime/comm/device_group.h"
#include "tests/support/recorded_graph.h"

namespace lockstep::testing {

class GlooGroup : public comm::DeviceGroup {
 public:
  explicit GlooGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10d::Backend> backend() const override { return group_; }
  // Of all Gloo groups of the process.
  std::string Trace() override {
    return c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
  }
  void Abort() override {}

 private:
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

class GlooDevice : public comm::DeviceBackend {
 public:
  explicit GlooDevice(at::Device device) : device_(device) {}

  std::string_view name() const override { return "second Gloo"; }
  at::Device device() const override { return device_; }
  std::vector<at::Device> devices() const override { return {device_}; }
  // Of one device several processes may each have a part.
  std::string device_id() const override {
    return device_.str() + " of process " + std::to_string(::getpid());
  }
  std::shared_ptr<comm::DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int world, std::chrono::milliseconds timeout) override {
    return std::make_shared<GlooGroup>(Connect<c10d::ProcessGroupGloo>(store, rank, world, timeout));
  }
  void LeaveDefaultStream() override {}
  std::unique_ptr<comm::DeviceGraph> NewGraph() override { return NewRecordedGraph(); }
  c10::intrusive_ptr<c10d::Work> Queued() override { return c10::make_intrusive<Done>(); }

 protected:
  template <typename Group>
  static c10::intrusive_ptr<Group> Connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                           std::chrono::milliseconds timeout) {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    const auto own = c10::make_intrusive<c10d::PrefixStore>("device", store);
    return c10::make_intrusive<Group>(own, rank, world, options);
  }

 private:
  // The CPU has done what was queued.
  class Done final : public c10d::Work {
   public:
    bool isCompleted() override { return true; }
    void synchronize() override {}
  };

  const at::Device device_;
};

}  // namespace lockstep::testing
