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
// With `copies`, each part is also kept, and computed, by ranks in the pods before that of the rank that gathers it:
// gradients are everywhere, so that costs no communication.
//
// Step thread. kAborted: the round broke; kInternal: LibTorch failed. After either this object still holds
// all that it held before.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/shard_plan.h"

namespace lockstep::train {

class ShardedOptimizer {
 public:
  // Most bytes that the ranks together send at once in a step.
  static constexpr int64_t kGatherChunkBytes = int64_t{16} << 20;
  // Most bytes that the ranks together give at once of a kind of state.
  static constexpr int64_t kExchangeChunkBytes = int64_t{16} << 20;

  struct Copies {
    int copies = 1;        // ranks that hold each part
    int ranks_in_pod = 1;  // which may all be lost at once
  };
  // As MakeOptimizer. kInvalidArgument where the parameters cannot be divided by elements.
  [[nodiscard]] static Result<std::unique_ptr<ShardedOptimizer>> Make(const api::OptimizerSpec& spec,
                                                                      std::vector<NamedTensor> parameters,
                                                                      Copies copies);

  // On all ranks together. Updates all parameters from their gradients, which are used up: the parts of the
  // other ranks arrive in their memory, chunk by chunk, before they become the parameters.
  [[nodiscard]] Result<void> Step(comm::Communicator& communicator, double learning_rate);
  // A step that changes nothing, as it was not finite: by each rank alone, so others may not know of it yet.
  void Skip();

  // On all ranks of a new round: the newest state that they hold together, if any; what is lost is logged.
  [[nodiscard]] Result<std::optional<Version>> Agree(comm::Communicator& communicator);
  // Then, with that version's parameters on all ranks: to each its part. What is needed no more is dropped.
  [[nodiscard]] Result<void> Deal(comm::Communicator& communicator, const Version& version);
  // On all ranks, within a round: those that leave it keep nothing.
  [[nodiscard]] Result<void> HandOver(comm::Communicator& communicator, bool leaves);

  // The part of all elements that a rank is to read of a stored state, so that the ranks together read it
  // once.
  [[nodiscard]] Range PartOf(int rank, int world) const;
  // Elements of a parameter, by its index, that lie in a range.
  [[nodiscard]] std::vector<std::pair<std::size_t, Range>> PiecesOf(const Range& range) const;
  // This rank now holds that part of it, as it was stored, for the round that was entered last: flat, one for
  // each kind of state, in the host's memory. Or all of it as before the first step.
  void Load(int64_t step, const Range& range, std::vector<at::Tensor> kinds);
  void StartAfresh();
  // The parameters are of no version: something else is written over them. Its parts are kept.
  void ForgetParameters() { version_ = {}; }

  // What MakeOptimizer's state() would be, by names, shapes and types alone: tensors without data, of one
  // kind after another, for each parameter.
  [[nodiscard]] const std::vector<NamedTensor>& described() const { return described_; }
  [[nodiscard]] std::size_t parameters() const { return sizes_.size(); }
  // On all ranks: tensor i with its data on rank ranks[i].
  [[nodiscard]] Result<std::vector<NamedTensor>> Gather(comm::Communicator& communicator,
                                                        const std::vector<int>& ranks) const;
  // All of it, by this rank alone. kNotFound where it does not hold all of it.
  [[nodiscard]] Result<std::vector<NamedTensor>> Whole() const;

  // Of the parameters. The step is -1 where this process has no state.
  [[nodiscard]] const Version& version() const { return version_; }
  [[nodiscard]] int64_t held_bytes() const;

 private:
  using Ranges = std::vector<Range>;
  struct Shard {
    Version version;
    Range range;
    std::vector<at::Tensor> kinds;         // flat, one for each kind of state
    std::vector<at::Tensor> parameters{};  // views of that range, one for each parameter that it touches
    std::unique_ptr<Optimizer> optimizer;  // over both; null: only kept
  };
  // Elements of one kind of state, on their way between the ranks.
  struct Move {
    std::size_t kind;
    Version version;
    const std::vector<Ranges>& given;   // by each rank, each element once
    const std::vector<Ranges>& wanted;  // by each rank
  };

  ShardedOptimizer(const api::OptimizerSpec& spec, std::vector<NamedTensor> parameters, Copies copies);

  [[nodiscard]] int64_t total() const { return kinds_ == 0 ? 0 : total_; }
  [[nodiscard]] std::vector<at::Tensor> ViewsOf(const Range& range) const;
  [[nodiscard]] at::Tensor FlatParameters(const Range& range) const;
  [[nodiscard]] std::vector<at::Tensor> GradientsOf(const Range& range) const;
  [[nodiscard]] Shard MakeShard(const Version& version, const Range& range,
                                std::vector<at::Tensor> kinds) const;
  void Update(const Shard& shard, double learning_rate) const;
  // On all ranks: the updated parameters of all parts, in the place of the gradients.
  [[nodiscard]] Result<void> GatherIntoGradients(comm::Communicator& communicator) const;
  void KeepOnly(const Version& version);
  // What each rank is to hold, where those that stay share all of it.
  [[nodiscard]] std::vector<Ranges> DealFor(const std::vector<bool>& stays) const;
  [[nodiscard]] Result<void> DealOut(comm::Communicator& communicator, const std::vector<Ranges>& deal);
  [[nodiscard]] Result<std::vector<Shard>> Receive(comm::Communicator& communicator,
                                                   const std::vector<Ranges>& deal) const;

  [[nodiscard]] Holder Myself() const;
  [[nodiscard]] Result<std::vector<Holder>> TellEachOther(comm::Communicator& communicator) const;
  void LogWhatIsLost(const std::vector<Holder>& holders, const std::optional<Version>& whole) const;
  // What this rank wants, range after range.
  [[nodiscard]] Result<at::Tensor> Exchange(comm::Communicator& communicator, const Move& move) const;
  // Of that what is in this chunk of what is given.
  [[nodiscard]] Result<void> ExchangeChunk(comm::Communicator& communicator, const Move& move,
                                           at::Tensor& mine) const;
  [[nodiscard]] at::Tensor SliceOf(std::size_t kind, const Version& version, const Range& range) const;

  const api::OptimizerSpec spec_;
  const std::vector<NamedTensor> parameters_;
  const Copies copies_;
  std::vector<int64_t> sizes_;   // of the parameters
  std::vector<int64_t> begins_;  // of the parameters, in all elements
  int64_t total_ = 0;            // elements of them
  std::size_t kinds_ = 0;
  std::vector<NamedTensor> described_;
  int64_t round_ = -1;  // entered last
  Version version_;     // of the parameters
  Ranges parts_;        // in this round; rank r gathers parts_[r]
  std::vector<Shard> shards_;
};

}  // namespace lockstep::train
