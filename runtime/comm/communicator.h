#pragma once
// The process group of one round: how its ranks reach each other. Made for a round, dropped with it, never
// reused.
//
// The step thread owns the collectives; Abort may come from any thread and makes every collective, running or
// later, return ErrorCode::kAborted within milliseconds (see Abort). Whoever learns that a round is broken
// calls it on its *own* communicator at once: in a ring, the ranks that are not the dead one's neighbours
// would otherwise wait for the whole time-out. c10d's exceptions end here.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/comm/device_group.h"
#include "runtime/comm/listener.h"
#include "runtime/common/base/result.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace lockstep::comm {

// A rank's place in a round, and where the round meets.
struct Place {
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  std::string address;     // to bind to; peers connect to it
  std::string store_host;  // where rank 0 serves the round's store
  int store_port = 0;
};

struct Deadlines {
  std::chrono::milliseconds connect{30'000};
  // Longer than any wait for a rank that is only late; recovery never waits for it. For a hang that nobody found.
  std::chrono::milliseconds collective;
};

// Keys and values of one round, kept by its rank 0. Any thread; outlives the communicator, so that work in
// the background can end after the round.
class RoundStore {
 public:
  virtual ~RoundStore() = default;
  [[nodiscard]] virtual Result<void> Set(const std::string& key, const std::string& value) = 0;
  // Does not wait: nothing where the key is not there yet.
  [[nodiscard]] virtual Result<std::optional<std::string>> Get(const std::string& key) = 0;
  // Adds to a number, 0 at first, and returns what it then is. Waits as long as the connection lasts: see
  // SharedCounter.
  [[nodiscard]] virtual Result<int64_t> Add(const std::string& key, int64_t amount) = 0;
};

class Communicator {
 public:
  // Blocks until all ranks of the round are connected. `listener` is used on rank 0 alone and must be the one
  // whose port the round announces. See ConnectUnlessStopped, too.
  [[nodiscard]] static Result<std::shared_ptr<Communicator>> Connect(const Place& place, Listener listener,
                                                                     const Deadlines& deadlines,
                                                                     const DeviceUse& use = {});
  // Milliseconds. A device's group that Close did not see the end of is left behind, and so is a Gloo group
  // with work that does not end.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Idempotent; any thread; milliseconds, a second where work does not end by itself. Closes every connection
  // of this process to the round's peers; the group of a device is aborted in the background.
  void Abort();
  [[nodiscard]] bool aborted() const { return aborted_.load(); }
  // Where there is a device: aborts, and waits until its group is gone, at most the limit of `use`.
  void Close();

  // Any thread. True while the step thread is in a collective, to which this rank has given its part: if it
  // makes no progress, another rank is at fault.
  [[nodiscard]] bool waits_for_peers() const { return waiting_.load() > 0; }
  // Bytes of the tensors that this rank gave to collectives and messages. What goes over its network for
  // them depends on the collective and the world. Any thread.
  [[nodiscard]] int64_t bytes_given() const { return bytes_given_.load(); }
  // For code that drives c10d itself.
  void CountGiven(const at::Tensor& tensor) { CountGiven(static_cast<int64_t>(tensor.nbytes())); }
  void CountGiven(int64_t bytes) { bytes_given_ += bytes; }
  // For code that drives c10d itself: in such a wait as long as this lives.
  class PeerWait {
   public:
    explicit PeerWait(Communicator& communicator) : communicator_(communicator) { communicator_.BeginWait(); }
    ~PeerWait() { communicator_.EndWait(); }
    PeerWait(const PeerWait&) = delete;
    PeerWait& operator=(const PeerWait&) = delete;

   private:
    Communicator& communicator_;
  };

  // Element-wise sum over the ranks, the same bits on each.
  [[nodiscard]] Result<void> SumInPlace(at::Tensor& tensor);
  // Copies the root's tensors into everyone's; shapes and types agree. Large tensors travel in pieces.
  [[nodiscard]] Result<void> Broadcast(std::vector<at::Tensor> tensors, int root);
  // Row r is what rank r passed; all pass as many. `limit` where a rank may have work to do first that takes longer
  // than the limit of other collectives allows; a shorter one changes nothing.
  [[nodiscard]] Result<std::vector<std::vector<int64_t>>> AllGather(
      std::span<const int64_t> values, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  // `input` is one block of rows for each rank, of `sent[r]` rows for rank r; all of one height where `sent`
  // is empty. `output` is what all ranks sent here, in their order, `rows[s]` rows from rank s. No rows at
  // all are allowed, too.
  [[nodiscard]] Result<void> AllToAll(at::Tensor& output, std::vector<int64_t> rows, at::Tensor& input,
                                      std::vector<int64_t> sent = {});
  // `all` is every rank's `mine` in the order of the ranks; all are equally large.
  [[nodiscard]] Result<void> AllGatherInto(at::Tensor& all, at::Tensor& mine);
  // From one rank to another, which passes a tensor of the same shape and type; both are contiguous. What two
  // ranks send to each other arrives in order. A send may wait until it is received: where two ranks have
  // something for each other, one of them receives first.
  [[nodiscard]] Result<void> Send(const at::Tensor& tensor, int peer);
  [[nodiscard]] Result<void> Receive(at::Tensor& tensor, int peer);
  [[nodiscard]] Result<void> Barrier();

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int world() const { return place_.world; }

  // Shared: see RoundStore.
  [[nodiscard]] std::shared_ptr<RoundStore> store() const;
  // For code that drives c10d itself (runtime/parallel). Lives as long as this object.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> group() const;
  // A sum that has been started: Wait before reading the tensor. Dropping it unwaited is allowed.
  class PendingSum {
   public:
    struct State;
    explicit PendingSum(std::unique_ptr<State> state);
    ~PendingSum();
    PendingSum(PendingSum&&) noexcept;
    [[nodiscard]] Result<void> Wait();

   private:
    std::unique_ptr<State> state_;
  };
  // Starts the sum and returns at once, so that it travels while this thread computes.
  [[nodiscard]] Result<PendingSum> StartSum(at::Tensor tensor);
  // For code that drives c10d itself: until work of a collective on `moved` is known to be good, on the host.
  [[nodiscard]] Result<void> WaitFor(c10d::Work& work, const at::Tensor& moved, std::string_view operation);
  // Until all is done that this thread has queued on the device, sums of this round among it.
  [[nodiscard]] Result<void> AwaitQueued(DeviceBackend& device, std::string_view operation);
  // The same of one on tensors of the host, for those who want to be told: it fails when the round is
  // aborted.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> FutureOf(c10d::Work& collective);

 private:
  struct Group;
  Communicator(Place place, std::chrono::milliseconds limit, std::unique_ptr<Group> group);
  // Step thread.
  void BeginWait();
  void EndWait();
  // Of the step thread for its peers: the one that it is in, else the last one. Any thread.
  [[nodiscard]] std::chrono::steady_clock::duration NewestWait() const;
  // `is_broken`: not in good order, so the trace of a long wait is kept.
  void End(bool is_broken);
  template <typename Call>
  Result<void> Run(std::string_view operation, Call&& call);
  // One piece of `tensor` after another.
  template <typename Move>
  Result<void> MoveInPieces(const at::Tensor& tensor, Move&& move);
  Result<void> WaitForHost(c10d::Work& collective, std::string_view operation);
  Result<void> WaitForMessage(const c10::intrusive_ptr<c10d::Work>& message, const at::Tensor& moved,
                              std::string_view operation);

  const Place place_;
  const std::chrono::milliseconds limit_;  // of a collective
  std::unique_ptr<Group> group_;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> is_closed_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> wait_began_{};
  std::atomic<std::chrono::steady_clock::duration> last_wait_{};
  std::atomic<int64_t> bytes_given_ = 0;
};

// Communicator::Connect on a thread of its own, so that the caller can give up at once when the round is over
// before it began: c10d and Gloo have no way to interrupt a connect. kCancelled where `stop` was requested
// first; the attempt then ends by itself in the background, which can take longer than the connect deadline.
// A process must not run the destructors of global objects meanwhile: it ends by std::_Exit. Any thread.
[[nodiscard]] Result<std::shared_ptr<Communicator>> ConnectUnlessStopped(const Place& place,
                                                                         Listener listener,
                                                                         const Deadlines& deadlines,
                                                                         std::stop_token stop,
                                                                         const DeviceUse& device = {});

}  // namespace lockstep::comm
