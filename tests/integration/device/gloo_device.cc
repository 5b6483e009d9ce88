// A device that is the CPU, with a second Gloo group in NCCL's place: what a rank does with a device, on
// machines that have none. Where the file that LOCKSTEP_TEST_ABORT_HANGS names is there, the first process to
// abort its group takes it away and hangs. Each process that sums leaves a file in LOCKSTEP_TEST_DEVICE_SUMS.
// Where LOCKSTEP_TEST_CONNECT_FAILS names a file, no group connects as long as it is there.

#include "tests/support/gloo_device.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "runtime/comm/device_module.h"

namespace lockstep {
namespace {

class ToldGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const char* folder = std::getenv("LOCKSTEP_TEST_DEVICE_SUMS");
    if (folder != nullptr) std::ofstream(std::string(folder) + "/" + std::to_string(::getpid()));
    return ProcessGroupGloo::allreduce(tensors, options);
  }
};

class HangingGroup final : public testing::GlooGroup {
 public:
  using GlooGroup::GlooGroup;
  void Abort() override {
    const char* hangs = std::getenv("LOCKSTEP_TEST_ABORT_HANGS");
    if (hangs == nullptr || ::unlink(hangs) != 0) return;
    while (true) ::pause();
  }
};

class ToldDevice final : public testing::GlooDevice {
 public:
  using GlooDevice::GlooDevice;
  std::shared_ptr<comm::DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int world, std::chrono::milliseconds timeout) override {
    const char* fails = std::getenv("LOCKSTEP_TEST_CONNECT_FAILS");
    if (fails != nullptr && ::access(fails, F_OK) == 0) throw std::runtime_error("no link, says the test");
    return std::make_shared<HangingGroup>(Connect<ToldGloo>(store, rank, world, timeout));
  }
};

Result<std::unique_ptr<comm::DeviceBackend>> Open(int, int) {
  return std::unique_ptr<comm::DeviceBackend>(std::make_unique<ToldDevice>(at::kCPU));
}

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) const lockstep::comm::DeviceModule*
lockstep_device_module() {
  static const lockstep::comm::DeviceModule module{LOCKSTEP_VERSION, lockstep::Open};
  return &module;
}
