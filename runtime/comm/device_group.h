#pragma once
// The interface of a communicator to a group that moves device tensors. The NCCL implementation is in
// runtime/cuda, a separate library, so that one program serves machines with and without GPUs.
//
// It is used in addition to the group for CPU tensors, which carries the ranks' numbers for coordination.

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
  // The process's collectives as JSON of c10d's flight recorder; empty: not recorded. Any thread, before
  // Abort, which ends unfinished collectives. May hang like Abort.
  [[nodiscard]] virtual std::string Trace() { return {}; }
  // Aborts all work of the group. Any thread. May hang; callers must bound it.
  virtual void Abort() = 0;
};

// A device as used by one process, and a factory for its groups.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "NCCL"
  [[nodiscard]] virtual at::Device device() const = 0;
  // All devices visible to the process, its own first.
  [[nodiscard]] virtual std::vector<at::Device> devices() const = 0;
  // Identifies the device uniquely across processes.
  [[nodiscard]] virtual std::string device_id() const = 0;
  // Blocks until all ranks are connected, and may hang like Abort. Throws LibTorch's exceptions.
  [[nodiscard]] virtual std::shared_ptr<DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                               int rank, int world,
                                                               std::chrono::milliseconds timeout) = 0;

  // From now on the calling thread's work is queued on a non-default stream, as recording requires.
  virtual void LeaveDefaultStream() = 0;
  [[nodiscard]] virtual std::unique_ptr<DeviceGraph> NewGraph() = 0;
  // Returns work that completes when everything that the calling thread has queued so far is done.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Work> Queued() = 0;
};

// What c10d's flight recorder of this process knew when a round broke.
struct BrokenTrace {
  int64_t round = 0;
  int rank = 0;
  std::string dump;  // JSON
  // Every collective that began before this time has ended; the recorder itself does not know all that have
  // (runtime/train/records/flight_trace.h). Since 1970; 0: nothing is known, as with subgroups.
  std::chrono::nanoseconds ended_before{0};
};

// The device with which a rank moves its tensors.
struct DeviceUse {
  // Null: no device was found. Outlives the process's communicators, and connects that were given up.
  DeviceBackend* backend = nullptr;
  // Called with a sentence if aborting the device's group hangs, so that the process is unusable.
  std::function<void(const std::string&)> give_up{};
  std::chrono::milliseconds abort_limit{10'000};
  // Called with the trace of the device's group if a round breaks in which the step thread waited long. It
  // runs before the group is aborted, on the aborting thread, and must not block on a store. May be empty.
  std::function<void(BrokenTrace trace)> keep_trace{};
  // Shorter waits are not traced: the death of a peer is noticed within milliseconds, and that recovery
  // should not pay for a trace.
  std::chrono::milliseconds long_wait{1'000};
};

// Stands for the id of a rank without a device.
inline constexpr std::string_view kNoDevice = "none";

// `ids` are in the order of the ranks. kInvalidArgument if two ranks use one device; the error names them. If
// only some ranks have a device: kDeviceLost on those without, kAborted on the others. Pure.
[[nodiscard]] Result<void> CheckDevices(std::span<const std::string> ids, int rank);

// Waits on the host until work on a device has ended. Further device work must not be queued before: an
// aborted sum leaves garbage in its tensor and throws no exception. kAborted if `aborted` returns true,
// before or after, or if `deadline` passes. c10d's own wait would abort the group on this thread after its
// time-out, and hang with it.
[[nodiscard]] Result<void> AwaitDeviceWork(c10d::Work& work, const std::function<bool()>& aborted,
                                           std::chrono::milliseconds deadline, std::string_view operation);

}  // namespace lockstep::comm
