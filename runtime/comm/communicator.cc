#include "runtime/comm/communicator.h"

#include <algorithm>

#include "runtime/comm/bounded_call.h"
#include "runtime/comm/connected_group.h"
#include "runtime/comm/single_tensor.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"

namespace lockstep::comm {
namespace {

// Bounds how long one message delays an abort, and the additional memory.
constexpr int64_t kPieceBytes = int64_t{32} << 20;
constexpr int kTag = 1;
// No rank sends with this tag.
constexpr int kUnusedTag = 0x5afe;
constexpr std::chrono::milliseconds kAbortWait{1};
// Work that has not ended this long after its connections were closed is leaked.
constexpr std::chrono::milliseconds kEndLimit{1'000};
constexpr std::string_view kSum = "sum over the ranks";

}  // namespace

Communicator::Communicator(Place place, std::chrono::milliseconds limit,
                           std::unique_ptr<ConnectedGroup> group)
    : place_(std::move(place)), limit_(limit), group_(std::move(group)) {}

// If a device group that is not aborted yet were dropped, c10d would abort it on this thread, without a time
// limit. Dropping a Gloo group waits for its threads.
Communicator::~Communicator() {
  if (group_->device_abort != nullptr && !is_closed_) {
    End(/*is_broken=*/false);
    (void)group_.release();
    return;
  }
  const auto limit = group_->open.gave_up() ? std::chrono::milliseconds(0) : kEndLimit;
  BoundedCall drop({"dropping the Gloo group", limit, {}},
                   [group = std::shared_ptr<ConnectedGroup>(std::move(group_))]() mutable { group.reset(); });
  const Result<void> dropped = drop.Wait();
  if (!dropped.ok())
    log::Warning("a group is left behind", {{"round", place_.round}, {"reason", dropped.error().message}});
}

void Communicator::Close() {
  if (group_->device_abort == nullptr) return;
  End(/*is_broken=*/false);
  const Result<void> done = group_->device_abort->Wait();
  is_closed_ = done.ok();
  if (!done.ok())
    log::Warning("a group of a device is left behind",
                 {{"round", place_.round}, {"reason", done.error().message}});
}

c10::intrusive_ptr<c10d::ProcessGroup> Communicator::group() const { return group_->process_group; }

// Gloo has no abort. But a receive that times out signals *every* connection of its context: all pending
// operations of this process throw and all sockets close, which notifies the peers. A receive from a peer
// whose connection is already closed throws at once and signals nothing, so there is one from each peer;
// after the first time-out the others throw at once.
void Communicator::End(bool is_broken) {
  if (aborted_.exchange(true)) return;
  if (subgroup_ != nullptr) subgroup_->End(is_broken);
  if (group_->device_abort != nullptr) {
    *group_->keeps_trace = is_broken && group_->long_wait.has_value() && NewestWait() >= *group_->long_wait;
    group_->device_abort->Start();
  }
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    try {
      std::vector<at::Tensor> landing = {at::empty({1}, at::kByte)};
      group_->gloo->recv(landing, peer, kUnusedTag)->wait(kAbortWait);
    } catch (const std::exception&) {
      // The exception is the purpose of the call.
    }
  }
  group_->open.End(kEndLimit);
}

void Communicator::Abort() { End(/*is_broken=*/true); }

void Communicator::BeginWait() {
  if (waiting_ == 0) wait_began_ = std::chrono::steady_clock::now();
  ++waiting_;
}

void Communicator::EndWait() {
  if (waiting_ == 1) last_wait_ = std::chrono::steady_clock::now() - wait_began_.load();
  --waiting_;
}

std::chrono::steady_clock::duration Communicator::NewestWait() const {
  const auto mine = waiting_ > 0 ? std::chrono::steady_clock::now() - wait_began_.load() : last_wait_.load();
  return subgroup_ == nullptr ? mine : std::max(mine, subgroup_->NewestWait());
}

bool Communicator::waits_for_peers() const {
  return waiting_ > 0 || (subgroup_ != nullptr && subgroup_->waits_for_peers());
}

int64_t Communicator::bytes_given() const {
  return bytes_given_ + (subgroup_ == nullptr ? 0 : subgroup_->bytes_given());
}

std::shared_ptr<RoundStore> Communicator::store() const { return group_->store; }

template <typename Call>
Result<void> Communicator::Run(std::string_view operation, Call&& call) {
  if (aborted()) return Error{ErrorCode::kAborted, std::string(operation) + ": the round was aborted"};
  const PeerWait wait(*this);
  return CatchTorch(ErrorCode::kAborted, operation, std::forward<Call>(call));
}

Result<void> Communicator::WaitFor(c10d::Work& work, const at::Tensor& moved, std::string_view operation) {
  if (moved.is_cpu()) return WaitForHost(work, operation);
  return AwaitDeviceWork(
      work, [this] { return aborted(); }, limit_, operation);
}

Result<void> Communicator::AwaitQueued(DeviceBackend& device, std::string_view operation) {
  const auto began = std::chrono::system_clock::now();
  LOCKSTEP_TRY(Run(operation, [&] {
    return AwaitDeviceWork(
        *device.Queued(), [this] { return aborted(); }, limit_, operation);
  }));
  DeviceReached(began);
  return {};
}

// A group's work ends in the order in which it began. Nothing follows for the work of another group.
void Communicator::DeviceReached(std::chrono::system_clock::time_point began) {
  if (subgroup_ != nullptr) return;
  *group_->ended_before = std::chrono::nanoseconds(began.time_since_epoch());
}

Result<void> Communicator::WaitForHost(c10d::Work& collective, std::string_view operation) {
  return CatchTorch(ErrorCode::kAborted, operation, [&] { FutureOf(collective)->waitAndThrow(); });
}

c10::intrusive_ptr<c10::ivalue::Future> Communicator::FutureOf(c10d::Work& collective) {
  return group_->open.FutureOf(collective);
}

struct Communicator::Pending::State {
  Communicator& communicator;  // must outlive the collective
  std::string_view operation;  // a literal
  at::Tensor result;
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();
  c10::intrusive_ptr<c10d::Work> work{};  // null: a world of one, so the result is there already
};

Communicator::Pending::Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Pending::~Pending() = default;
Communicator::Pending::Pending(Pending&&) noexcept = default;

Result<void> Communicator::Pending::Wait() {
  if (state_->work == nullptr) return {};
  const PeerWait wait(state_->communicator);
  LOCKSTEP_TRY(state_->communicator.WaitFor(*state_->work, state_->result, state_->operation));
  if (!state_->result.is_cpu()) state_->communicator.DeviceReached(state_->began);
  return {};
}

template <typename Start>
Result<Communicator::Pending> Communicator::StartWork(std::string_view operation, at::Tensor result,
                                                      Start&& start) {
  auto state = std::make_unique<Pending::State>(
      Pending::State{.communicator = *this, .operation = operation, .result = std::move(result)});
  LOCKSTEP_TRY(Run(operation, [&]() -> Result<void> {
    state->work = start();
    return {};
  }));
  return Pending(std::move(state));
}

Result<Communicator::Pending> Communicator::StartSum(at::Tensor tensor) {
  return StartWork(kSum, tensor, [&]() -> c10::intrusive_ptr<c10d::Work> {
    if (world() == 1) return {};
    std::vector<at::Tensor> tensors = {tensor};
    CountGiven(tensor);
    return group_->process_group->allreduce(tensors);
  });
}

Result<Communicator::Pending> Communicator::StartAllGather(at::Tensor all, at::Tensor mine) {
  return StartWork("all-gather", all, [&] {
    CountGiven(mine);
    return AllGatherSingle(*group_->process_group, all, mine);
  });
}

Result<Communicator::Pending> Communicator::StartAllToAll(at::Tensor output, at::Tensor input) {
  return StartWork("all-to-all", output, [&] {
    CountGiven(input);
    std::vector<int64_t> blocks(static_cast<std::size_t>(world()), input.size(0) / world());
    return AllToAllSingle(*group_->process_group, output, input, blocks, blocks);
  });
}

Result<void> Communicator::SumInPlace(at::Tensor& tensor) {
  LOCKSTEP_TRY(Pending sum, StartSum(tensor));
  return sum.Wait();
}

template <typename Move>
Result<void> Communicator::MoveInPieces(const at::Tensor& tensor, Move&& move) {
  const at::Tensor flat = tensor.view(-1);
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / flat.element_size());
  for (int64_t begin = 0; begin < flat.numel(); begin += piece) {
    std::vector<at::Tensor> part = {flat.narrow(0, begin, std::min(piece, flat.numel() - begin))};
    LOCKSTEP_TRY(move(part));
  }
  return {};
}

Result<void> Communicator::Broadcast(std::vector<at::Tensor> tensors, int root) {
  return Run("broadcast", [&]() -> Result<void> {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    for (const at::Tensor& tensor : tensors) {
      if (rank() == root) CountGiven(tensor);
      LOCKSTEP_TRY(MoveInPieces(tensor, [&](std::vector<at::Tensor>& part) {
        return WaitFor(*group_->process_group->broadcast(part, options), tensor, "broadcast");
      }));
    }
    return {};
  });
}

Result<void> Communicator::Send(const at::Tensor& tensor, int peer) {
  return Run("send", [&] {
    CountGiven(tensor);
    return MoveInPieces(tensor, [&](std::vector<at::Tensor>& part) {
      return WaitForMessage(group_->process_group->send(part, peer, kTag), tensor, "send");
    });
  });
}

Result<void> Communicator::Receive(at::Tensor& tensor, int peer) {
  return Run("receive", [&] {
    return MoveInPieces(tensor, [&](std::vector<at::Tensor>& part) {
      return WaitForMessage(group_->process_group->recv(part, peer, kTag), tensor, "receive");
    });
  });
}

// A point-to-point message has no time limit of its own, unlike a collective.
Result<void> Communicator::WaitForMessage(const c10::intrusive_ptr<c10d::Work>& message,
                                          const at::Tensor& moved, std::string_view operation) {
  if (!moved.is_cpu()) return WaitFor(*message, moved, operation);
  return CatchTorch(ErrorCode::kAborted, operation, [&] { return group_->open.Await(message, limit_); });
}

Result<std::vector<std::vector<int64_t>>> Communicator::AllGather(
    std::span<const int64_t> values, std::optional<std::chrono::milliseconds> limit) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::vector<int64_t>> rows;
  LOCKSTEP_TRY(Run("all-gather", [&]() -> Result<void> {
    at::Tensor mine = at::empty({count}, at::kLong);
    std::copy(values.begin(), values.end(), mine.data_ptr<int64_t>());
    std::vector<std::vector<at::Tensor>> all(1);
    for (int rank = 0; rank < world(); ++rank) all[0].push_back(at::empty({count}, at::kLong));
    std::vector<at::Tensor> input = {mine};
    CountGiven(mine);
    c10d::AllgatherOptions options;
    options.timeout = std::max(limit.value_or(limit_), limit_);
    LOCKSTEP_TRY(WaitForHost(*group_->process_group->allgather(all, input, options), "all-gather"));
    for (const at::Tensor& row : all[0]) {
      rows.emplace_back(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + count);
    }
    return {};
  }));
  return rows;
}

Result<void> Communicator::AllToAll(at::Tensor& output, std::vector<int64_t> rows, at::Tensor& input,
                                    std::vector<int64_t> sent) {
  return Run("all-to-all", [&] {
    CountGiven(input);
    if (sent.empty()) sent.assign(static_cast<std::size_t>(world()), input.size(0) / world());
    return WaitFor(*AllToAllSingle(*group_->process_group, output, input, rows, sent), output, "all-to-all");
  });
}

Result<void> Communicator::AllGatherInto(at::Tensor& all, at::Tensor& mine) {
  LOCKSTEP_TRY(Pending gathered, StartAllGather(all, mine));
  return gathered.Wait();
}

Result<void> Communicator::Barrier() {
  return Run("barrier", [&] { return WaitForHost(*group_->gloo->barrier(), "barrier"); });
}

}  // namespace lockstep::comm
