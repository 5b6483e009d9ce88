#pragma once
// What a Communicator has of c10d: made in connect.cc, used and ended in communicator.cc. Threads are those of
// the Communicator.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/bounded_call.h"
#include "runtime/comm/device_group.h"
#include "runtime/comm/open_work.h"
#include "runtime/comm/place.h"
#include "runtime/comm/round_store.h"
#include "runtime/common/base/result.h"

namespace lockstep::comm {

// Of a process: that of all ranks, then that of its subgroup if there are any.
using DeviceGroups = std::vector<std::shared_ptr<DeviceGroup>>;

struct ConnectedGroup {
  // Throws LibTorch's exceptions. `c10d_store` is set before.
  void ConnectGloo(const Place& place, const Deadlines& deadlines);
  // Null: there is no device.
  [[nodiscard]] Result<std::shared_ptr<DeviceGroup>> ConnectDeviceOf(const Place& place,
                                                                     const Deadlines& deadlines,
                                                                     const DeviceUse& use);

  OpenWork open;
  c10::intrusive_ptr<c10d::Store> c10d_store;
  std::shared_ptr<RoundStore> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  // Empty: the CPU only. Shared with their abort, which may hang.
  std::shared_ptr<DeviceGroups> devices = std::make_shared<DeviceGroups>();
  std::unique_ptr<BoundedCall> device_abort;  // of all; null: the CPU only, or a subgroup
  std::shared_ptr<std::atomic<bool>> keeps_trace =
      std::make_shared<std::atomic<bool>>(false);  // shared for the same reason as `devices`
  // BrokenTrace::ended_before
  std::shared_ptr<std::atomic<std::chrono::nanoseconds>> ended_before =
      std::make_shared<std::atomic<std::chrono::nanoseconds>>(std::chrono::nanoseconds(0));
  std::optional<std::chrono::milliseconds> long_wait;  // absent: no trace is kept
};

}  // namespace lockstep::comm
