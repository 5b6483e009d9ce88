#pragma once
// The process group of one round. It is created for a round, closed with it and never reused.
//
// The step thread owns the collectives. Abort may be called from any thread and makes every collective,
// running or later, return ErrorCode::kAborted within milliseconds (see Abort). Any code that detects a
// broken round calls it on its *own* communicator at once: in a ring, only the neighbours of a dead rank
// notice its death, and the others would wait for the whole time-out. c10d's exceptions are converted to
// errors here.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/device_group.h"
#include "runtime/comm/listener.h"
#include "runtime/comm/place.h"
#include "runtime/comm/round_store.h"
#include "runtime/common/base/result.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace lockstep::comm {

struct ConnectedGroup;

class Communicator {
 public:
  // Blocks until all ranks of the round are connected. `listener` is used on rank 0 only and must have the
  // port that the round announces. See also ConnectUnlessStopped.
  [[nodiscard]] static Result<std::shared_ptr<Communicator>> Connect(const Place& place, Listener listener,
                                                                     const Deadlines& deadlines,
                                                                     const DeviceUse& use = {});
  // Takes milliseconds. A device group whose end Close did not see is leaked, and so is a Gloo group with
  // work that does not end.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Idempotent; any thread. Takes milliseconds, or a second if work does not end by itself. Closes every
  // connection of this process to the round's peers, in its subgroup as well; a device's group is aborted in
  // the background.
  void Abort();
  [[nodiscard]] bool aborted() const { return aborted_.load(); }
  // If there is a device: aborts, and waits until its group is gone, at most for the limit of `use`.
  void Close();

  // Whether the step thread is in a collective to which this rank has given its part. If the collective makes
  // no progress then, another rank is responsible. Any thread.
  [[nodiscard]] bool waits_for_peers() const;
  // Bytes of the tensors that this rank passed to collectives and messages, in its subgroup as well. The
  // network traffic for them depends on the collective and the world size. Any thread.
  [[nodiscard]] int64_t bytes_given() const;
  // For code that uses c10d directly.
  void CountGiven(const at::Tensor& tensor) { CountGiven(static_cast<int64_t>(tensor.nbytes())); }
  void CountGiven(int64_t bytes) { bytes_given_ += bytes; }
  // For code that uses c10d directly: marks such a wait for the lifetime of the object.
  class PeerWait {
   public:
    explicit PeerWait(Communicator& communicator) : communicator_(communicator) { communicator_.BeginWait(); }
    ~PeerWait() { communicator_.EndWait(); }
    PeerWait(const PeerWait&) = delete;
    PeerWait& operator=(const PeerWait&) = delete;

   private:
    Communicator& communicator_;
  };

  // Element-wise sum over the ranks, with the same bits on each.
  [[nodiscard]] Result<void> SumInPlace(at::Tensor& tensor);
  // Copies the root's tensors to all ranks; shapes and types must agree. Large tensors are sent in pieces.
  [[nodiscard]] Result<void> Broadcast(std::vector<at::Tensor> tensors, int root);
  // Row r contains the values of rank r; all ranks pass the same number. `limit` extends the time limit if
  // another rank may have long work to do first; a limit below the default has no effect.
  [[nodiscard]] Result<std::vector<std::vector<int64_t>>> AllGather(
      std::span<const int64_t> values, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  // `input` has one block of rows per destination rank, `sent[r]` rows for rank r; equal blocks if `sent` is
  // empty. `output` receives the blocks from all ranks in their order, `rows[s]` rows from rank s. Empty
  // blocks are allowed.
  [[nodiscard]] Result<void> AllToAll(at::Tensor& output, std::vector<int64_t> rows, at::Tensor& input,
                                      std::vector<int64_t> sent = {});
  // `all` receives every rank's `mine` in the order of the ranks; all must have the same size.
  [[nodiscard]] Result<void> AllGatherInto(at::Tensor& all, at::Tensor& mine);
  // Point-to-point messages. The peer must pass a tensor of the same shape and type; both must be contiguous.
  // Messages between two ranks arrive in order. Send may block until the message is received, so if two ranks
  // send to each other, one of them must receive first.
  [[nodiscard]] Result<void> Send(const at::Tensor& tensor, int peer);
  [[nodiscard]] Result<void> Receive(at::Tensor& tensor, int peer);
  [[nodiscard]] Result<void> Barrier();

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int world() const { return place_.world; }

  // The ranks that are connected among themselves: those from k * size to (k + 1) * size - 1, numbered from 0.
  // Without subgroups this object itself. It ends with this object; the step thread may use both.
  [[nodiscard]] Communicator& subgroup() { return subgroup_ == nullptr ? *this : *subgroup_; }

  // Shared: see RoundStore.
  [[nodiscard]] std::shared_ptr<RoundStore> store() const;
  // For code that uses c10d directly (runtime/parallel). Valid for the lifetime of this object.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> group() const;
  // A collective that has been started. Call Wait before reading its result. It may be dropped without
  // waiting.
  class Pending {
   public:
    struct State;
    explicit Pending(std::unique_ptr<State> state);
    ~Pending();
    Pending(Pending&&) noexcept;
    [[nodiscard]] Result<void> Wait();

   private:
    std::unique_ptr<State> state_;
  };
  // SumInPlace, AllGatherInto, and AllToAll with equal blocks, which return at once, so that communication
  // overlaps with computation. The tensors are kept until the collective ends.
  [[nodiscard]] Result<Pending> StartSum(at::Tensor tensor);
  [[nodiscard]] Result<Pending> StartAllGather(at::Tensor all, at::Tensor mine);
  [[nodiscard]] Result<Pending> StartAllToAll(at::Tensor output, at::Tensor input);
  // For code that uses c10d directly: blocks until the work of a collective on `moved` is known to be good on
  // the host.
  [[nodiscard]] Result<void> WaitFor(c10d::Work& work, const at::Tensor& moved, std::string_view operation);
  // Blocks until everything that this thread has queued on the device is done, including sums of this round.
  [[nodiscard]] Result<void> AwaitQueued(DeviceBackend& device, std::string_view operation);
  // For a collective on host tensors: a future that completes with the collective and fails if the round is
  // aborted.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> FutureOf(c10d::Work& collective);

 private:
  Communicator(Place place, std::chrono::milliseconds limit, std::unique_ptr<ConnectedGroup> group);
  // Called before another thread has this object.
  [[nodiscard]] Result<void> ConnectSubgroup(const Deadlines& deadlines, const DeviceUse& use);
  // Step thread.
  void BeginWait();
  void EndWait();
  // The duration of the step thread's current wait for peers, or of the last one. Any thread.
  [[nodiscard]] std::chrono::steady_clock::duration NewestWait() const;
  // `is_broken`: the round did not end normally, so the trace of a long wait is kept.
  void End(bool is_broken);
  template <typename Call>
  Result<void> Run(std::string_view operation, Call&& call);
  // `start` returns the work that writes `result`.
  template <typename Start>
  Result<Pending> StartWork(std::string_view operation, at::Tensor result, Start&& start);
  // Moves `tensor` piece by piece.
  template <typename Move>
  Result<void> MoveInPieces(const at::Tensor& tensor, Move&& move);
  // Everything of this group on the device that began before that time has ended.
  void DeviceReached(std::chrono::system_clock::time_point began);
  Result<void> WaitForHost(c10d::Work& collective, std::string_view operation);
  Result<void> WaitForMessage(const c10::intrusive_ptr<c10d::Work>& message, const at::Tensor& moved,
                              std::string_view operation);

  const Place place_;
  const std::chrono::milliseconds limit_;  // of a collective
  std::unique_ptr<ConnectedGroup> group_;
  std::unique_ptr<Communicator> subgroup_;  // null: none
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> is_closed_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> wait_began_{};
  std::atomic<std::chrono::steady_clock::duration> last_wait_{};
  std::atomic<int64_t> bytes_given_ = 0;
};

}  // namespace lockstep::comm
