// How a Communicator is connected: the round's store, Gloo, the device, and the same for its subgroup.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>

#include "runtime/comm/communicator.h"
#include "runtime/comm/connected_group.h"
#include "runtime/comm/single_tensor.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::milliseconds kTraceLimit{1'000};
constexpr int64_t kDeviceNameBytes = 128;

c10::intrusive_ptr<c10d::Store> MakeStore(const Place& place, Listener& listener,
                                          const Deadlines& deadlines) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.store_port);
  options.isServer = place.rank == 0;
  options.waitWorkers = false;
  options.timeout = deadlines.connect;
  if (options.isServer) options.masterListenFd = listener.Release();
  auto store = c10::make_intrusive<c10d::TCPStore>(place.store_host, options);
  return c10::make_intrusive<c10d::PrefixStore>("round/" + std::to_string(place.round), store);
}

// All ranks exchange their device ids before a device connects, so that a mistake is an error that names the
// ranks instead of a hang.
Result<void> CheckDevicesOf(const Place& place, const DeviceUse& use, c10d::ProcessGroup& group) {
  const std::string mine = use.backend == nullptr ? std::string(kNoDevice) : use.backend->device_id();
  LOCKSTEP_TRY(const std::vector<std::string> ids,
               CatchTorch(ErrorCode::kAborted, "exchanging the device ids", [&] {
                 at::Tensor name = at::zeros({1, kDeviceNameBytes}, at::kByte);
                 std::copy_n(mine.begin(), std::min(mine.size(), std::size_t{kDeviceNameBytes - 1}),
                             name.data_ptr<uint8_t>());
                 at::Tensor all = at::empty({place.world, kDeviceNameBytes}, at::kByte);
                 AllGatherSingle(group, all, name)->wait();
                 std::vector<std::string> found;
                 for (int rank = 0; rank < place.world; ++rank) {
                   const uint8_t* const id = all.const_data_ptr<uint8_t>() + rank * kDeviceNameBytes;
                   found.emplace_back(id, std::find(id, id + kDeviceNameBytes, uint8_t{0}));
                 }
                 return found;
               }));
  return CheckDevices(ids, place.rank);
}

// Runs on a separate thread, because a peer that hangs while NCCL connects blocks all others forever. They
// leak that thread; the state that they hold is worth more.
Result<std::shared_ptr<DeviceGroup>> ConnectDevice(const Place& place, const DeviceUse& use,
                                                   const c10::intrusive_ptr<c10d::Store>& store,
                                                   const Deadlines& deadlines) {
  auto group = std::make_shared<std::shared_ptr<DeviceGroup>>();
  BoundedCall connect(
      {"connecting the " + std::string(use.backend->name()) + " group", deadlines.connect, {}},
      [=, backend = use.backend] {
        *group = backend->MakeGroup(store, place.rank, place.world, deadlines.collective);
      });
  const Result<void> connected = connect.Wait();
  if (!connected.ok()) return Error{ErrorCode::kAborted, connected.error().message};
  return *group;
}

// Bounded, because reading the trace may hang, and the abort that follows would end that.
void KeepTrace(const Place& place, const DeviceUse& use, const std::shared_ptr<DeviceGroup>& group,
               std::chrono::nanoseconds ended_before) {
  auto trace = std::make_shared<std::string>();
  BoundedCall read({"reading the flight recorder", kTraceLimit, {}}, [=] { *trace = group->Trace(); });
  const Result<void> done = read.Wait();
  if (!done.ok())
    return log::Warning("no trace of the collectives",
                        {{"round", place.round}, {"rank", place.rank}, {"reason", done.error().message}});
  if (trace->empty()) return;
  use.keep_trace({place.round, place.rank, std::move(*trace), ended_before});
}

}  // namespace

void ConnectedGroup::ConnectGloo(const Place& place, const Deadlines& deadlines) {
  // A single Gloo device, so a single context: Abort reaches every connection through it.
  auto options = c10d::ProcessGroupGloo::Options::create(deadlines.connect);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(place.address)};
  gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10d_store, place.rank, place.world, options);
  process_group = c10::make_intrusive<c10d::ProcessGroup>(c10d_store, place.rank, place.world);
  process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                            c10::intrusive_ptr<c10d::Backend>(gloo));
  process_group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  store = MakeRoundStore(c10d_store);
}

Result<std::shared_ptr<DeviceGroup>> ConnectedGroup::ConnectDeviceOf(const Place& place,
                                                                     const Deadlines& deadlines,
                                                                     const DeviceUse& use) {
  std::shared_ptr<DeviceGroup> device;
  if (use.backend == nullptr) return device;
  LOCKSTEP_TRY(device, ConnectDevice(place, use, c10d_store, deadlines));
  process_group->setBackend(use.backend->device().type(), c10d::ProcessGroup::BackendType::NCCL,
                            device->backend());
  return device;
}

Result<std::shared_ptr<Communicator>> Communicator::Connect(const Place& place, Listener listener,
                                                            const Deadlines& deadlines,
                                                            const DeviceUse& use) {
  auto group = std::make_unique<ConnectedGroup>();
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, "connecting the ranks of the round", [&] {
    group->c10d_store = MakeStore(place, listener, deadlines);
    group->ConnectGloo(place, deadlines);
  }));
  // Part of connecting: no rank has work to do before it, and no supervisor watches this wait yet.
  LOCKSTEP_TRY(CheckDevicesOf(place, use, *group->process_group));
  group->gloo->setTimeout(deadlines.collective);
  LOCKSTEP_TRY(const std::shared_ptr<DeviceGroup> device, group->ConnectDeviceOf(place, deadlines, use));
  if (device != nullptr) {
    group->devices->push_back(device);
    group->device_abort = std::make_unique<BoundedCall>(
        BoundedCall::Terms{"aborting the " + std::string(use.backend->name()) + " group", use.abort_limit,
                           use.give_up},
        [place, use, devices = group->devices, keeps_trace = group->keeps_trace,
         ended_before = group->ended_before] {
          // The trace has the collectives of all groups of the process.
          if (*keeps_trace) KeepTrace(place, use, devices->front(), *ended_before);
          for (const std::shared_ptr<DeviceGroup>& each : *devices) each->Abort();
        });
    if (use.keep_trace) group->long_wait = use.long_wait;
  }
  std::shared_ptr<Communicator> communicator(new Communicator(place, deadlines.collective, std::move(group)));
  if (place.subgroup_size == 0 || place.subgroup_size == place.world) return communicator;
  if (const auto connected = communicator->ConnectSubgroup(deadlines, use); !connected.ok()) {
    communicator->Close();
    return connected.error();
  }
  return communicator;
}

Result<void> Communicator::ConnectSubgroup(const Deadlines& deadlines, const DeviceUse& use) {
  const int size = place_.subgroup_size;
  LOCKSTEP_CHECK(size > 0 && world() % size == 0, "all subgroups have the same size");
  Place place = place_;
  place.rank = rank() % size;
  place.world = size;
  place.subgroup_size = 0;
  auto group = std::make_unique<ConnectedGroup>();
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, "connecting the ranks of a subgroup", [&] {
    group->c10d_store = c10::make_intrusive<c10d::PrefixStore>("subgroup/" + std::to_string(rank() / size),
                                                               group_->c10d_store);
    group->ConnectGloo(place, deadlines);
  }));
  group->gloo->setTimeout(deadlines.collective);
  LOCKSTEP_TRY(const std::shared_ptr<DeviceGroup> device, group->ConnectDeviceOf(place, deadlines, use));
  if (device != nullptr) group_->devices->push_back(device);
  subgroup_.reset(new Communicator(std::move(place), deadlines.collective, std::move(group)));
  return {};
}

}  // namespace lockstep::comm
