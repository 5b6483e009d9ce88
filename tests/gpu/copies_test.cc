// What travels between the host and a GPU: batches, and the state of a checkpoint.

#include <cstring>

#include "runtime/checkpoint/host_copy.h"
#include "runtime/data/dataset.h"
#include "tests/gpu/with_a_device.h"

namespace lockstep {
namespace {

using comm::DeviceBackend;
using testing::OnTheGpu;

// Larger than what travels in a moment; overwritten as an optimizer does, while it travels.
TEST(HostCopy, HasWhatWasThereWhenItWasTaken) {
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    const auto options = at::TensorOptions(gpu.device()).dtype(at::kFloat);
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
  OnTheGpu(1, [](DeviceBackend& gpu, int) {
    const data::Batch batch{.inputs = at::rand({64, 3, 32, 32}), .targets = at::arange(64)};
    const data::Batch pinned = batch.Pinned();
    REQUIRE(pinned.inputs.is_pinned() && pinned.targets.is_pinned());
    const data::Batch there = pinned.To(gpu.device());
    REQUIRE(there.inputs.cpu().equal(batch.inputs) && there.targets.cpu().equal(batch.targets));
    return 0;
  });
}

}  // namespace
}  // namespace lockstep
