// NCCL, as liblockstep_cuda.so brings it.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/comm/bounded_call.h"
#include "runtime/comm/listener.h"
#include "runtime/launch/supervisor/nccl_ras.h"
#include "runtime/train/records/flight_trace.h"
#include "tests/gpu/with_a_device.h"

namespace lockstep::cuda {
namespace {

using comm::DeviceBackend;
using std::chrono::milliseconds;
using testing::OnTheGpu;
using testing::RoundConnector;

TEST(NcclGroup, Sums) {
  RoundConnector connector;
  OnTheGpu(1, [&](DeviceBackend& gpu, int rank) {
    auto communicator = connector.Enter(1, rank, 1, {.backend = &gpu});
    REQUIRE(communicator.ok());
    at::Tensor sum = at::full({1000}, 3, at::TensorOptions(gpu.device()).dtype(at::kFloat));
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    REQUIRE(sum.eq(3).all().item<bool>());
    (*communicator)->Abort();
    REQUIRE((*communicator)->SumInPlace(sum).error().code == ErrorCode::kAborted);
    return 0;
  });
}

bool Ends(c10d::Work& work) {
  return comm::AwaitDeviceWork(
             work, [] { return false; }, testing::kPatience, "sum")
      .ok();
}

// c10d's recorder does not learn that the others are over, and their events are in use again.
TEST(NcclGroup, TellsWhichSumHasNotEnded) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    const auto group = gpu.MakeGroup(c10::make_intrusive<c10d::HashStore>(), 0, 1, milliseconds(60'000));
    std::vector<at::Tensor> sum = {at::ones({1000}, at::TensorOptions(gpu.device()))};
    for (int i = 0; i < 50; ++i) REQUIRE(Ends(*group->backend()->allreduce(sum)));
    at::Tensor slow = at::eye(8192, at::TensorOptions(gpu.device()));
    for (int i = 0; i < 200; ++i) slow = slow.mm(slow);  // seconds, and the sum is queued behind
    const auto ended_before = std::chrono::system_clock::now().time_since_epoch();
    const auto last = group->backend()->allreduce(sum);
    const auto trace = train::ReadFlightTrace(group->Trace(), ended_before);
    REQUIRE(!last->isCompleted());
    REQUIRE(trace.ok());
    REQUIRE(trace->collective == "nccl:all_reduce" && trace->sizes == "[[1000]]");
    REQUIRE(trace->sequence == 51 && trace->state == "scheduled");
    REQUIRE(Ends(*last));
    REQUIRE(train::ReadFlightTrace(group->Trace())->state == "completed");
    group->Abort();
    return 0;
  });
}

// What a supervisor reads when a rank hangs.
TEST(NcclGroup, IsReportedByNcclsRas) {
  RoundConnector connector;
  OnTheGpu(1, [&](DeviceBackend& gpu, int rank) {
    const int free_port = comm::Listener::Open("127.0.0.1").value().port();
    const std::string address = "127.0.0.1:" + std::to_string(free_port);
    ::setenv("NCCL_RAS_ADDR", address.c_str(), 1);
    auto communicator = connector.Enter(1, rank, 1, {.backend = &gpu});
    REQUIRE(communicator.ok());
    at::Tensor sum = at::full({1000}, 3, at::TensorOptions(gpu.device()).dtype(at::kFloat));
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    const auto answer = launch::AskRas(address, testing::kPatience, {});
    REQUIRE(answer.ok());
    const auto found = launch::ParseRasAnswer(*answer);
    REQUIRE(found.ok() && found->size() == 1 && found->front().size == 1);
    const auto& ranks = found->front().ranks;
    REQUIRE(ranks.size() == 1 && ranks.front().pid == ::getpid() && !ranks.front().ends);
    // NCCL sums of one rank without a kernel, and does not count that.
    REQUIRE(std::any_of(ranks.front().entered.begin(), ranks.front().entered.end(),
                        [](const auto& entered) { return entered.first == "AllReduce"; }));
    REQUIRE(launch::DescribeRas(*found, 1) == "all ranks have entered the same collectives");
    (*communicator)->Abort();
    return 0;
  });
}

// NCCL itself would wait for ever.
TEST(NcclGroup, IsGivenUpWhereAPeerNeverComes) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    std::string problem;
    comm::BoundedCall connect(
        {"connecting", milliseconds(2'000), [&](const std::string& reported) { problem = reported; }},
        [&gpu] {
          const auto store = c10::make_intrusive<c10d::HashStore>();
          (void)gpu.MakeGroup(store, 0, 2, milliseconds(60'000));
        });
    REQUIRE(!connect.Wait().ok());
    REQUIRE(problem == "connecting: no end within 2000 ms");
    return 0;
  });
}

bool Says(const Error& error, std::string_view part) {
  if (error.message.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "\"%s\" does not say \"%s\"\n", error.message.c_str(), std::string(part).c_str());
  return false;
}

TEST(NcclGroup, IsRefusedToAPodWithMoreRanksThanGpus) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    const int ranks = static_cast<int>(gpu.devices().size()) + 1;
    const auto refused = comm::OpenDevice(testing::kCudaModule, 0, ranks);
    REQUIRE(!refused.ok() && Says(refused.error(), "NCCL refuses two ranks on one"));
    return 0;
  });
}

// As of two pods to which a node gave the same one.
TEST(NcclGroup, IsRefusedToTwoRanksOnOneGpu) {
  RoundConnector connector;
  OnTheGpu(2, [&](DeviceBackend& gpu, int rank) {
    const auto refused = connector.Enter(1, rank, 2, {.backend = &gpu});
    REQUIRE(!refused.ok() && refused.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(Says(refused.error(), "ranks 0 and 1 are on one device, " + gpu.device_id()));
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::cuda
