// What the driver says of the GPU on which a rank trains.

#include <cstdlib>

#include "runtime/telemetry/gpu_reader.h"
#include "tests/gpu/with_a_device.h"

namespace lockstep::telemetry {
namespace {

TEST(GpuReader, ReadsTheGpuThatTheRankUses) {
  testing::OnTheGpu(1, [](comm::DeviceBackend& gpu, int) {
    GpuSelection selection{.most = 1};
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr)
      selection.visible = visible;
    const auto reader = GpuReader::Open(kNvmlLibrary, selection);
    REQUIRE(reader.ok());
    constexpr int64_t kBytes = 1 << 30;
    const at::Tensor held = at::ones({kBytes}, at::TensorOptions(gpu.device()).dtype(at::kByte));
    const std::vector<GpuReading> readings = (*reader)->Read();
    REQUIRE(readings.size() == 1);
    const GpuReading& reading = readings.front();
    REQUIRE(reading.name + " " + reading.uuid == gpu.device_id());
    REQUIRE(reading.memory_used_bytes.value_or(0) >= static_cast<double>(kBytes));
    REQUIRE(reading.memory_total_bytes.value_or(0) > reading.memory_used_bytes.value_or(0));
    REQUIRE(reading.utilization.has_value());
    return 0;
  });
}

}  // namespace
}  // namespace lockstep::telemetry
