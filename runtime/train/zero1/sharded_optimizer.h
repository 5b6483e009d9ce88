#pragma once
// An optimizer whose state is divided over the ranks of the round (ZeRO stage 1: Rajbhandari et al., "ZeRO:
// Memory Optimizations Toward Training Trillion Parameter Models", 2020). Each rank keeps the state of its
// part of the elements, updates that part of the parameters, and the ranks gather the parts. Gradients are
// summed on all ranks as without it, so norm, clipping and loss scale are the same numbers.
//
// Replicated state gets three properties for free. This class has to provide them:
//   a step is a transaction   Collecting the parts may fail on some ranks and succeed on others. Until it has
//                             succeeded on this rank, the rank also keeps its part from before the step. The
//                             next round decides from which of the two states all ranks continue.
//   a new round               The parts are redistributed from the ranks that have them. If a part is missing,
//                             there is no state.
//   a rank that leaves        It hands its part over first.
//
// With `copies`, each part is also kept, and updated, by ranks in the pods before that of its owner: every
// rank has all gradients, so this costs no communication.
//
// Step thread. kAborted: the round broke. kInternal: LibTorch failed. After either error this object still
// holds all that it held before.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/zero1/shard_plan.h"

namespace lockstep::train {

class ShardedOptimizer {
 public:
  // The maximum number of bytes that all ranks together send at once in a step.
  static constexpr int64_t kGatherChunkBytes = int64_t{16} << 20;
  // The maximum number of bytes of one state slot that all ranks together exchange at once.
  static constexpr int64_t kExchangeChunkBytes = int64_t{16} << 20;

  struct Copies {
    int copies = 1;        // number of ranks that hold each part
    int ranks_in_pod = 1;  // ranks that may be lost at once
  };
  // As MakeOptimizer. kInvalidArgument if the parameters cannot be divided by elements.
  [[nodiscard]] static Result<std::unique_ptr<ShardedOptimizer>> Make(const api::OptimizerSpec& spec,
                                                                      std::vector<NamedTensor> parameters,
                                                                      Copies copies);

  // All ranks call this together. Updates all parameters from their gradients and overwrites the gradients:
  // the updated parts of the other ranks arrive in gradient memory, chunk by chunk, before they are copied to
  // the parameters.
  [[nodiscard]] Result<void> Step(comm::Communicator& communicator, double learning_rate);
  // Counts a step that changes nothing because it was not finite. Each rank does this alone, so other ranks
  // may not have seen the step yet.
  void Skip();

  // All ranks of a new round call this. Returns the newest state that they hold together, if any, and logs
  // what is lost.
  [[nodiscard]] Result<std::optional<Version>> Agree(comm::Communicator& communicator);
  // Called after Agree, when all ranks have that version's parameters. Sends each rank its part and drops
  // what is no longer needed.
  [[nodiscard]] Result<void> Redistribute(comm::Communicator& communicator, const Version& version);
  // All ranks of the round call this with the same `stays`, of which some are true and some are not. Ranks
  // that leave keep nothing.
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator, const std::vector<bool>& stays);

  // The range of all elements that a rank reads from a stored state, so that the ranks together read it once.
  [[nodiscard]] Range PartOf(int rank, int world) const;
  // The elements of each parameter (by index) that are inside a range.
  [[nodiscard]] std::vector<std::pair<std::size_t, Range>> PiecesOf(const Range& range) const;
  // Sets this rank's part of a stored state for the newest round: one flat CPU tensor per state slot.
  // StartAfresh sets the whole state to that before the first step.
  void Load(int64_t step, const Range& range, std::vector<at::Tensor> slots);
  void StartAfresh();
  // Marks the parameters as having no version, because something else is about to overwrite them. The
  // optimizer state is kept.
  void ForgetParameters() { version_ = {}; }

  // Names, shapes and types that MakeOptimizer's state() would have: tensors without data, one state slot
  // after another, for each parameter.
  [[nodiscard]] const std::vector<NamedTensor>& described() const { return described_; }
  [[nodiscard]] std::size_t parameters() const { return sizes_.size(); }
  // All ranks call this together. Collects tensor i on rank ranks[i]; it has no data on the others.
  [[nodiscard]] Result<std::vector<NamedTensor>> Collect(comm::Communicator& communicator,
                                                         const std::vector<int>& ranks) const;
  // Whether this rank holds some of the state, but not all of it.
  [[nodiscard]] bool holds_a_part() const;
  // The whole state, from this rank alone. kNotFound if it does not hold all of it.
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const;

  // The version of the parameters. The step is -1 if this process has no state.
  [[nodiscard]] const Version& version() const { return version_; }
  [[nodiscard]] int64_t held_bytes() const;

 private:
  using Ranges = std::vector<Range>;
  struct Shard {
    Version version;
    Range range;
    std::vector<at::Tensor> slots;         // flat, one per state slot
    std::vector<at::Tensor> parameters{};  // views of that range, one per parameter that it touches
    std::unique_ptr<Optimizer> optimizer;  // over both; null: the shard is only kept
  };
  // Elements of one state slot to exchange between the ranks.
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

  ShardedOptimizer(const api::OptimizerSpec& spec, std::vector<NamedTensor> parameters, Copies copies);

  [[nodiscard]] int64_t total() const { return slot_count_ == 0 ? 0 : total_; }
  [[nodiscard]] std::vector<at::Tensor> ViewsOf(const Range& range) const;
  [[nodiscard]] at::Tensor FlatParameters(const Range& range) const;
  [[nodiscard]] std::vector<at::Tensor> GradientsOf(const Range& range) const;
  [[nodiscard]] Shard MakeShard(const Version& version, const Range& range,
                                std::vector<at::Tensor> slots) const;
  void Update(const Shard& shard, double learning_rate) const;
  // All ranks call this: collects the updated parameters of all parts in gradient memory.
  [[nodiscard]] Result<void> GatherIntoGradients(comm::Communicator& communicator) const;
  void KeepOnly(const Version& version);
  // The ranges that each rank is to hold if the ranks that stay share everything.
  [[nodiscard]] std::vector<Ranges> AssignRanges(const std::vector<bool>& stays) const;
  [[nodiscard]] Result<void> MoveRanges(comm::Communicator& communicator,
                                        const std::vector<Ranges>& assigned);
  [[nodiscard]] Result<std::vector<Shard>> Receive(comm::Communicator& communicator,
                                                   const std::vector<Holder>& holders,
                                                   const std::vector<Ranges>& assigned) const;

  [[nodiscard]] Holder Myself() const;
  [[nodiscard]] Result<std::vector<Holder>> ExchangeStates(comm::Communicator& communicator) const;
  void LogWhatIsLost(const std::vector<Holder>& holders, const std::optional<Version>& whole) const;
  // Returns a tensor for each range that this rank wants. Elements that no rank gives are 0, as before the
  // first step.
  [[nodiscard]] Result<std::vector<at::Tensor>> Exchange(comm::Communicator& communicator,
                                                         const Move& move) const;
  // Writes the wanted elements of those given, which fit into a chunk, into `mine`.
  [[nodiscard]] Result<void> ExchangeChunk(comm::Communicator& communicator, const Move& move, Chunk& chunk,
                                           const std::vector<at::Tensor>& mine) const;
  [[nodiscard]] at::Tensor SliceOf(std::size_t slot, const Version& version, const Range& range) const;

  const api::OptimizerSpec spec_;
  const std::vector<NamedTensor> parameters_;
  const std::vector<ParameterSettings> settings_;  // of the parameters
  const Copies copies_;
  std::vector<int64_t> sizes_;   // of the parameters
  std::vector<int64_t> begins_;  // of the parameters, in all elements
  int64_t total_ = 0;            // elements of them
  std::size_t slot_count_ = 0;
  std::vector<NamedTensor> described_;
  int64_t round_ = -1;  // the newest that this rank entered
  Version version_;     // of the parameters
  Ranges parts_;        // of this round; rank r updates parts_[r]
  std::vector<Shard> shards_;
};

}  // namespace lockstep::train
