// liblockstep_cuda.so on a GPU. Skipped without one, and says so; that it is built and what it then says,
// comm_test tests.

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "runtime/checkpoint/host_copy.h"
#include "runtime/comm/bounded_call.h"
#include "runtime/comm/device_module.h"
#include "runtime/data/dataset.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::cuda {
namespace {

using comm::BoundedCall;
using comm::Communicator;
using comm::DeviceBackend;
using comm::OpenDevice;
using std::chrono::milliseconds;
using testing::ForkedProcess;
using testing::kPatience;
using testing::LineChannel;
using testing::Meeting;

constexpr const char* kModule = LOCKSTEP_CUDA_MODULE;
// A child's exit code: it has told its parent why there is no device.
constexpr int kNoDevice = 77;

using Body = std::function<int(DeviceBackend&)>;

// In a process of its own, as CUDA does not survive a fork.
void WithADevice(const Body& body) {
  ForkedProcess child([&](LineChannel& parent) {
    auto device = OpenDevice(kModule, 0, 1);
    if (!device.ok()) {
      parent.Send(device.error().message);
      return kNoDevice;
    }
    return body(**device);
  });
  const std::optional<std::string> reason = child.channel().Receive(kPatience);
  const std::optional<int> code = child.Wait(kPatience);
  if (code == kNoDevice) GTEST_SKIP() << "NOT TESTED, there is no GPU: " << reason.value_or("");
  EXPECT_EQ(code, 0);
}

TEST(NcclGroup, Sums) {
  Meeting meeting;
  WithADevice([&](DeviceBackend& backend) {
    const comm::Place place{
        .round = 1, .address = "127.0.0.1", .store_host = "127.0.0.1", .store_port = meeting.port};
    auto communicator = Communicator::Connect(place, std::move(meeting.listener), {}, {.backend = &backend});
    REQUIRE(communicator.ok());
    at::Tensor sum = at::full({1000}, 3, at::TensorOptions(backend.device()).dtype(at::kFloat));
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    REQUIRE(sum.eq(3).all().item<bool>());
    (*communicator)->Abort();
    REQUIRE((*communicator)->SumInPlace(sum).error().code == ErrorCode::kAborted);
    return 0;
  });
}

// NCCL itself would wait for ever.
TEST(NcclGroup, IsGivenUpWhereAPeerNeverComes) {
  WithADevice([](DeviceBackend& backend) {
    std::string problem;
    BoundedCall connect({"connecting", milliseconds(2'000), [&](const std::string& told) { problem = told; }},
                        [&backend] {
                          const auto store = c10::make_intrusive<c10d::HashStore>();
                          (void)backend.MakeGroup(store, 0, 2, milliseconds(60'000));
                        });
    REQUIRE(!connect.Wait().ok());
    REQUIRE(problem == "connecting: no end within 2000 ms");
    return 0;
  });
}

// Larger than what travels in a moment; overwritten as an optimizer does, while it travels.
TEST(HostCopy, HasWhatWasThereWhenItWasTaken) {
  WithADevice([](DeviceBackend& backend) {
    const auto options = at::TensorOptions(backend.device()).dtype(at::kFloat);
    at::Tensor large = at::full({64 << 20}, 1, options);
    at::Tensor columns = at::arange(12, options).view({3, 4}).t();
    checkpoint::HostCopy copy({{"large", large}, {"columns", columns}, {"scale", at::full({1}, 7.0F)}},
                              nullptr);
    for (int step = 0; step < 10; ++step) large.add_(1);
    columns.zero_();
    const std::string_view arrived = copy.Await();
    const auto number = [&](std::size_t tensor, std::size_t element) {
      float value = 0;
      const auto offset = static_cast<std::size_t>(copy.places()[tensor].offset);
      std::memcpy(&value, arrived.data() + offset + element * sizeof value, sizeof value);
      return value;
    };
    REQUIRE(copy.places().size() == 3);
    for (std::size_t i = 0; i < std::size_t{64} << 20; ++i) REQUIRE(number(0, i) == 1);
    REQUIRE(number(1, 1 * 3 + 2) == 9);
    REQUIRE(number(2, 0) == 7);
    return 0;
  });
}

TEST(PinnedBatch, ArrivesOnTheDevice) {
  WithADevice([](DeviceBackend& backend) {
    const data::Batch batch{.inputs = at::rand({64, 3, 32, 32}), .targets = at::arange(64)};
    const data::Batch pinned = batch.Pinned();
    REQUIRE(pinned.inputs.is_pinned() && pinned.targets.is_pinned());
    const data::Batch there = pinned.To(backend.device());
    REQUIRE(there.inputs.cpu().equal(batch.inputs) && there.targets.cpu().equal(batch.targets));
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::cuda
