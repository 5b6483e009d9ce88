#pragma once
// What a communicator needs of a group that moves the tensors of a device; NCCL's is in runtime/cuda, a
// library of its own, so that one program serves machines with and without a GPU.
//
// It stands beside the group for the tensors of the CPU, which carries what ranks tell each other in numbers.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/device_graph.h"
#include "runtime/common/base/result.h"

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d

namespace lockstep::comm {

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Backend> backend() const = 0;
  // What this process's collectives came to, as c10d's flight recorder tells it in JSON; empty: nobody kept
  // it. Any thread, before Abort: that ends what has not ended. May hang like Abort.
  [[nodiscard]] virtual std::string Trace() { return {}; }
  // Any thread. Ends whatever runs in the group. May hang; callers bound it.
  virtual void Abort() = 0;
};

// A device as one process uses it, and how groups are made for it.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "NCCL"
  [[nodiscard]] virtual at::Device device() const = 0;
  // All that the process sees, its own first.
  [[nodiscard]] virtual std::vector<at::Device> devices() const = 0;
  // The same from whichever process the device is seen, another than that of any other device.
  [[nodiscard]] virtual std::string device_id() const = 0;
  // Blocks until all ranks are connected, and may hang like Abort. Throws as LibTorch does.
  [[nodiscard]] virtual std::shared_ptr<DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                               int rank, int world,
                                                               std::chrono::milliseconds timeout) = 0;

  // What the calling thread queues goes to a stream of its own from here on, as what is to be recorded must.
  virtual void LeaveDefaultStream() = 0;
  [[nodiscard]] virtual std::unique_ptr<DeviceGraph> NewGraph() = 0;
  // Is over when all is done that the calling thread has queued so far.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Work> Queued() = 0;
};

// Which device a rank moves its tensors with.
struct DeviceUse {
  // Absent: none was found. Outlives the process's communicators, and connects that were given up.
  DeviceBackend* backend = nullptr;
  // Aborting the device's group hangs: the process is of no use any more. Gets a sentence.
  std::function<void(const std::string&)> give_up{};
  std::chrono::milliseconds abort_limit{10'000};
  // Gets the trace of the device's group where a round breaks in which the step thread waited long. Before
  // the group is aborted, on the thread that does it, which must not wait for a store. May be empty.
  std::function<void(int64_t round, int rank, std::string trace)> keep_trace{};
  // A peer that dies is noticed within milliseconds: who recovers from that does not pay for a trace.
  std::chrono::milliseconds long_wait{1'000};
};

// What a rank without a device says in place of its id.
inline constexpr std::string_view kNoDevice = "none";

// Ids in order of the ranks. Names the ranks where two are on one device (kInvalidArgument), or only some
// have one: then it is those without that have to go (kDeviceLost for them, kAborted for the others). Pure.
[[nodiscard]] Result<void> CheckDevices(std::span<const std::string> ids, int rank);

// Waits on the host until work on a device has ended. What follows on the device must not be queued before:
// an aborted sum leaves garbage behind and no exception. kAborted where `aborted` says so, before or after,
// or where `deadline` is over; c10d's own wait would then abort the group on this thread, and hang with it.
[[nodiscard]] Result<void> AwaitDeviceWork(c10d::Work& work, const std::function<bool()>& aborted,
                                           std::chrono::milliseconds deadline, std::string_view operation);

}  // namespace lockstep::comm
