#pragma once
// Elements of a training's state that are divided over the ranks of the round: each rank holds ranges of them,
// in one flat tensor per slot, on the device or in host memory. Slots are what belongs to one element: moments
// of the optimizer (zero1), with fsdp the parameter, too. Subclasses step the elements.
//
// Replicated state gets two properties for free. This class provides them:
//   a new round               The ranges are redistributed from the ranks that have them. If elements are
//                             missing, there is no state.
//   a rank that leaves        It hands its elements over first.
//
// Step thread. kAborted: the round broke. kInternal: LibTorch failed. After either error this object still
// holds all that it held before.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/shards/shard_optimizer.h"
#include "runtime/train/shards/shard_plan.h"

namespace lockstep::train {

using checkpoint::NamedTensor;

class HeldShards {
 public:
  // The maximum number of bytes of one slot that all ranks together exchange at once.
  static constexpr int64_t kExchangeChunkBytes = int64_t{16} << 20;
  using Ranges = std::vector<Range>;

  // All ranks of a new round call this. Returns the newest state that they hold together, if any, and logs
  // what is lost.
  [[nodiscard]] Result<std::optional<Version>> Agree(comm::Communicator& communicator);
  // Called after Agree, when all ranks can continue from that version. Sends each rank its part and drops
  // what is no longer needed.
  [[nodiscard]] Result<void> Redistribute(comm::Communicator& communicator, const Version& version);
  // All ranks of the round call this with the same `stays`, of which some are true and some are not. Ranks
  // that leave keep nothing.
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator, const std::vector<bool>& stays);

  // The range of all elements that a rank reads from a stored state, so that the ranks together read it once.
  // It need not be what the rank holds after Redistribute: blocks of a file are larger than most pieces.
  [[nodiscard]] Range PartOf(int rank, int world) const;
  // The elements of each parameter (by index) that are inside a range.
  [[nodiscard]] Pieces PiecesOf(const Range& range) const;
  // Adds a range of a state for the newest round: one flat tensor per slot, which may be in host memory until
  // Redistribute.
  void Load(int64_t step, const Range& range, std::vector<at::Tensor> slots);
  // Marks the state as having no version, because something else is about to overwrite what belongs to it.
  // The ranges are kept.
  void ForgetVersion() { version_ = {}; }

  // Names, shapes and types of the tensors that are divided: tensors without data, one slot after another,
  // for each parameter.
  [[nodiscard]] const std::vector<NamedTensor>& described() const { return described_; }
  [[nodiscard]] std::size_t parameters() const { return sizes_.size(); }
  // All ranks call this together. Collects tensor i on rank ranks[i]; it has no data on the others.
  [[nodiscard]] Result<std::vector<NamedTensor>> Collect(comm::Communicator& communicator,
                                                         const std::vector<int>& ranks) const;
  // Whether this rank holds some of the state, but not all of it.
  [[nodiscard]] bool holds_a_part() const;
  // The whole state, from this rank alone. kNotFound if it does not hold all of it.
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const;

  // That of the state. The step is -1 if this process has none.
  [[nodiscard]] const Version& version() const { return version_; }
  [[nodiscard]] int64_t held_bytes() const;
  // Of one slot, in a round of that size: of the rank that holds most, copies included.
  [[nodiscard]] int64_t LargestSlotBytes(int world) const;
  [[nodiscard]] int64_t slot_count() const { return static_cast<int64_t>(slot_count_); }

 protected:
  struct Shard {
    Version version;
    Range range;
    std::vector<at::Tensor> slots;  // flat
    // For subclasses: the gradient of the elements, and what updates them from step to step.
    at::Tensor gradient{};
    std::shared_ptr<ShardOptimizer> optimizer{};
  };

  // `parameters` have the elements, in this order. `slot_names` are the prefixes of the names in a checkpoint.
  // `what` names the state in the log. Elements are exchanged on the device of `options`, and held there or, if
  // `in_host_memory`, on the CPU.
  HeldShards(const std::vector<NamedTensor>& parameters, const std::vector<std::string>& slot_names,
             const at::TensorOptions& options, bool begins_at_zero, Copies copies, std::string what,
             bool in_host_memory = false);
  virtual ~HeldShards() = default;
  HeldShards(const HeldShards&) = delete;
  HeldShards& operator=(const HeldShards&) = delete;

  // One part of all elements for each of `holders`, which may be several ranges. Each group has all elements.
  [[nodiscard]] virtual std::vector<Ranges> Cut(int holders) const = 0;
  // Ranks that have the whole state together (shard_plan.h).
  [[nodiscard]] virtual int GroupOf(int holders) const { return holders; }
  [[nodiscard]] virtual Holder Myself() const;
  // The parts that the holder at a position holds, its own first (shard_plan.h).
  [[nodiscard]] std::vector<int> PartsOf(int position, int holders) const {
    return PartsHeldBy(position, holders, GroupOf(holders), copies_);
  }

  void KeepOnly(const Version& version);
  [[nodiscard]] int64_t round() const { return round_; }
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] const at::TensorOptions& options() const { return options_; }
  // Of this round, by rank.
  [[nodiscard]] const std::vector<Ranges>& parts() const { return parts_; }
  // After Redistribute: the ranges of this rank's parts, in the order of PartsOf.
  [[nodiscard]] std::vector<Shard>& shards() { return shards_; }
  [[nodiscard]] const std::vector<Shard>& shards() const { return shards_; }
  void SetVersion(const Version& version) { version_ = version; }

 private:
  // Elements of one slot to exchange between the ranks.
  struct Move {
    std::size_t slot;
    Version version;
    const std::vector<Ranges>& given;   // by each rank, each element once
    const std::vector<Ranges>& wanted;  // by each rank
  };
  // Elements that a rank exchanges at once.
  struct Chunk {
    at::Tensor sent;
    at::Tensor received;
  };

  // As if each rank held its own part alone.
  [[nodiscard]] std::vector<Holder> HoldersOfParts() const;
  [[nodiscard]] int64_t total() const { return slot_count_ == 0 ? 0 : total_; }
  [[nodiscard]] Elements all() const { return {total(), begins_at_zero_}; }
  // The ranges that each rank is to hold if the ranks that stay share everything.
  [[nodiscard]] std::vector<Ranges> AssignRanges(const std::vector<bool>& stays) const;
  [[nodiscard]] Result<void> MoveRanges(comm::Communicator& communicator,
                                        const std::vector<Ranges>& assigned);
  [[nodiscard]] Result<std::vector<Shard>> Receive(comm::Communicator& communicator,
                                                   const std::vector<Holder>& holders,
                                                   const std::vector<Ranges>& assigned) const;
  [[nodiscard]] Result<std::vector<Holder>> ExchangeStates(comm::Communicator& communicator) const;
  void LogWhatIsLost(const std::vector<Holder>& holders, const std::optional<Version>& whole) const;
  // Returns a tensor for each range that this rank wants. Elements that no rank gives are 0, as before the
  // first step.
  [[nodiscard]] Result<std::vector<at::Tensor>> Exchange(comm::Communicator& communicator,
                                                         const Move& move) const;
  // Writes the wanted elements of those given, which fit into a chunk, into `mine`.
  [[nodiscard]] Result<void> ExchangeChunk(comm::Communicator& communicator, const Move& move, Chunk& chunk,
                                           const std::vector<at::Tensor>& mine) const;
  [[nodiscard]] at::Tensor OnOwnDevice(const at::Tensor& slot) const;
  [[nodiscard]] at::Tensor SliceOf(std::size_t slot, const Version& version, const Range& range) const;

  const bool begins_at_zero_;
  const Copies copies_;
  const std::string what_;
  const at::TensorOptions options_;       // of what is exchanged
  const at::TensorOptions slot_options_;  // of what is held
  std::vector<int64_t> sizes_;            // of the parameters
  std::vector<int64_t> begins_;           // of the parameters, in all elements
  int64_t total_ = 0;                     // elements of them
  std::size_t slot_count_ = 0;
  std::vector<NamedTensor> described_;
  int64_t round_ = -1;  // the newest that this rank entered
  Version version_;
  std::vector<Ranges> parts_;
  std::vector<Shard> shards_;
};

}  // namespace lockstep::train
