#pragma once
// Ranks on the GPU that liblockstep_cuda.so brings, each in a process of its own, as CUDA does not survive a
// fork.

#include <gtest/gtest.h>

#include <functional>

#include "runtime/comm/device_module.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::testing {

inline constexpr const char* kCudaModule = LOCKSTEP_CUDA_MODULE;
// A child's exit code: it has reported to its parent why there is no device.
inline constexpr int kNoDevice = 77;

// Returns as `main` does; `rank` from 0.
using DeviceBody = std::function<int(comm::DeviceBackend& gpu, int rank)>;

// All ranks on the first GPU. Without one, the test is skipped and says why.
inline void OnTheGpu(int ranks, const DeviceBody& body) {
  auto children = StartRanks(ranks, [&](int rank, LineChannel& parent) {
    auto device = comm::OpenDevice(kCudaModule, 0, 1);
    if (!device.ok()) {
      parent.Send(device.error().message);
      return kNoDevice;
    }
    return body(**device, rank);
  });
  const std::optional<std::string> reason = children.front().channel().Receive(kPatience);
  for (ForkedProcess& child : children) {
    const std::optional<int> code = child.Wait(kPatience);
    if (code == kNoDevice) GTEST_SKIP() << "NOT TESTED, there is no GPU: " << reason.value_or("");
    EXPECT_EQ(code, 0);
  }
}

}  // namespace lockstep::testing
