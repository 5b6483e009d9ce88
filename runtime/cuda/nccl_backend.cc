// liblockstep_cuda.so: one GPU per rank, and NCCL between them (runtime/comm/device_group.h).

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/device_module.h"
#include "runtime/cuda/cuda_graph.h"

namespace lockstep::cuda {
namespace {

using comm::DeviceBackend;
using comm::DeviceGroup;

// c10d reads these from the environment only. Whatever the container sets, the loop over rounds owns
// recovery: without a watchdog, c10d does not end the process, abort a group or keep a thread; waits have a
// deadline in AwaitDeviceWork.
void TakeRecoveryFromC10d() {
  constexpr std::pair<const char*, const char*> kSettings[] = {
      {"TORCH_NCCL_BLOCKING_WAIT", "1"},         // no watchdog thread
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},  // the watchdog would do this
      {"TORCH_NCCL_ENABLE_MONITORING", "0"},     // would end the process if the watchdog hangs
      // c10d's flight recorder queries the events of destroyed work, because only the watchdog would notify
      // it of the end. With the cache, these events are reused by younger work
      // (runtime/train/records/flight_trace.h); without it, they would be freed memory.
      {"TORCH_NCCL_CUDA_EVENT_CACHE", "1"},
  };
  for (const auto& [name, value] : kSettings) ::setenv(name, value, /*overwrite=*/1);
}

class NcclGroup final : public DeviceGroup {
 public:
  explicit NcclGroup(c10::intrusive_ptr<c10d::ProcessGroupNCCL> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10d::Backend> backend() const override { return group_; }
  std::string Trace() override {
    return c10d::dump_nccl_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
  }
  void Abort() override { group_->abort(); }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

// Everything queued on the current stream so far.
class QueuedWork final : public c10d::Work {
 public:
  QueuedWork() { event_.record(); }
  bool isCompleted() override { return event_.query(); }
  void synchronize() override { event_.block(c10::cuda::getCurrentCUDAStream()); }

 private:
  at::cuda::CUDAEvent event_;
};

class NcclBackend final : public DeviceBackend {
 public:
  NcclBackend(at::Device device, int visible, std::string id)
      : device_(device), visible_(visible), id_(std::move(id)) {}

  std::string_view name() const override { return "NCCL"; }
  at::Device device() const override { return device_; }
  std::vector<at::Device> devices() const override {
    std::vector<at::Device> all = {device_};
    for (int i = 0; i < visible_; ++i) {
      const at::Device one(at::kCUDA, static_cast<c10::DeviceIndex>(i));
      if (one != device_) all.push_back(one);
    }
    return all;
  }
  std::string device_id() const override { return id_; }

  std::shared_ptr<DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                         std::chrono::milliseconds timeout) override {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    const auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world, options);
    // Otherwise NCCL would connect at the first collective, on the step thread.
    group->eagerConnectSingleDevice(device_);
    return std::make_shared<NcclGroup>(group);
  }

  void LeaveDefaultStream() override {
    at::cuda::CUDAEvent before;
    before.record();
    const c10::cuda::CUDAStream own = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
    before.block(own);
    c10::cuda::setCurrentCUDAStream(own);
  }
  std::unique_ptr<comm::DeviceGraph> NewGraph() override { return NewCudaGraph(graph_pool_); }
  c10::intrusive_ptr<c10d::Work> Queued() override { return c10::make_intrusive<QueuedWork>(); }

 private:
  const at::Device device_;
  const int visible_;
  const std::string id_;
  const c10::MempoolId_t graph_pool_ = at::cuda::graph_pool_handle();
};

Error None(const std::string& why) { return {ErrorCode::kNotFound, why}; }

// "NVIDIA H200 GPU-3f5c…", as in nvidia-smi -L: it distinguishes GPUs across machines.
std::string IdOf(const cudaDeviceProp& properties) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id = std::string(properties.name) + " GPU-";
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) id += '-';
    id += kDigits[byte >> 4U];
    id += kDigits[byte & 15U];
  }
  return id;
}

Result<std::unique_ptr<DeviceBackend>> Open(int local_rank, int ranks_here) {
  int visible = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&visible); code != cudaSuccess) {
    return None(std::string("CUDA finds no GPU: ") + cudaGetErrorString(code));
  }
  if (visible < ranks_here) {
    return None("this pod has " + std::to_string(ranks_here) + " ranks and sees " + std::to_string(visible) +
                " GPUs, and NCCL refuses two ranks on one: cuda:0 would be that of ranks 0 and " +
                std::to_string(visible) + " of the pod");
  }
  cudaDeviceProp properties{};
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, local_rank); code != cudaSuccess) {
    return None("cuda:" + std::to_string(local_rank) + ": " + cudaGetErrorString(code));
  }
  TakeRecoveryFromC10d();
  const auto index = static_cast<c10::DeviceIndex>(local_rank);
  c10::cuda::set_device(index);
  return std::unique_ptr<DeviceBackend>(
      std::make_unique<NcclBackend>(at::Device(at::kCUDA, index), visible, IdOf(properties)));
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::comm::DeviceModule*
lockstep_device_module() {
  static const lockstep::comm::DeviceModule module{LOCKSTEP_VERSION, lockstep::cuda::Open};
  return &module;
}
