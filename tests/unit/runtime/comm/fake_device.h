#pragma once
// A device that is not there, for tests of the communicator. Use one only in a rank of its own (IN_A_RANK).

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_group.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::comm {

class FakeWork final : public c10d::Work {
 public:
  bool isCompleted() override { return completed; }
  std::exception_ptr exception() const override { return problem; }
  void synchronize() override { ++synchronized; }
  bool isSuccess() const override { throw std::logic_error("NCCL's work does not report it"); }
  bool wait(std::chrono::milliseconds) override {
    ADD_FAILURE() << "c10d's wait aborts the group where it times out, on this thread";
    return true;
  }

  std::atomic<bool> completed = false;
  std::exception_ptr problem;
  int synchronized = 0;
};

// Moves no data: there is no device.
struct IdleBackend final : c10d::Backend {
  using c10d::Backend::Backend;
};

struct FakeGroup final : DeviceGroup {
  c10::intrusive_ptr<c10d::Backend> backend() const override { return made; }
  std::string Trace() override {
    if (trace_hangs.valid()) trace_hangs.wait();
    return "read after " + std::to_string(aborts) + " aborts";
  }
  void Abort() override {
    ++aborts;
    if (hangs.valid()) hangs.wait();
  }

  c10::intrusive_ptr<c10d::Backend> made = c10::make_intrusive<IdleBackend>(0, 1);
  std::atomic<int> aborts = 0;
  std::shared_future<void> hangs;
  std::shared_future<void> trace_hangs;
};

struct FakeBackend final : DeviceBackend {
  std::string_view name() const override { return "fake"; }
  at::Device device() const override { return {at::kCUDA, 0}; }
  std::vector<at::Device> devices() const override { return {device()}; }
  std::string device_id() const override { return id; }
  std::shared_ptr<DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                         std::chrono::milliseconds) override {
    if (connect_hangs.valid()) connect_hangs.wait();
    return group;
  }
  void LeaveDefaultStream() override {}
  std::unique_ptr<DeviceGraph> NewGraph() override { return nullptr; }
  c10::intrusive_ptr<c10d::Work> Queued() override {
    auto work = c10::make_intrusive<FakeWork>();
    work->completed = true;
    return work;
  }

  std::string id = "GPU-a";
  std::shared_ptr<FakeGroup> group = std::make_shared<FakeGroup>();
  std::shared_future<void> connect_hangs;
};

inline Result<std::shared_ptr<Communicator>> EnterWith(testing::RoundConnector& connector, int rank,
                                                       int world, const DeviceUse& use,
                                                       const Deadlines& deadlines = {
                                                           .collective = testing::kCollectiveLimit}) {
  const Place place{.round = 1,
                    .rank = rank,
                    .world = world,
                    .address = "127.0.0.1",
                    .store_host = "127.0.0.1",
                    .store_port = connector.port};
  return Communicator::Connect(place, std::move(connector.listener), deadlines, use);
}

// In a separate process: Gloo's threads must not exist in a process that forks later.
#define IN_A_RANK(...)                                                              \
  testing::RoundConnector connector;                                                \
  auto ranks = testing::StartRanks(1, [&](int, testing::LineChannel&) __VA_ARGS__); \
  testing::ExpectAllSucceed(ranks)

}  // namespace lockstep::comm
