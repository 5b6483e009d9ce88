// How HeldShards move between the ranks: what each holds, and exchanging it.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/train/shards/held_shards.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

// A rank's report about itself: version, number of holdings; then version and range of each.
constexpr std::size_t kNumbersBeforeHoldings = 3;
constexpr std::size_t kNumbersOfAHolding = 4;

Holder DecodeHolder(const std::vector<int64_t>& row) {
  Holder holder{.version = {row.at(0), row.at(1)}, .held = {}};
  for (int64_t i = 0; i < row.at(2); ++i) {
    const std::size_t at = kNumbersBeforeHoldings + static_cast<std::size_t>(i) * kNumbersOfAHolding;
    holder.held.push_back({{row.at(at), row.at(at + 1)}, {row.at(at + 2), row.at(at + 3)}});
  }
  return holder;
}

}  // namespace

Result<std::optional<Version>> HeldShards::Agree(Communicator& communicator) {
  round_ = communicator.place().round;
  LOCKSTEP_TRY(const std::vector<Holder> holders, ExchangeStates(communicator));
  const std::optional<Version> whole = NewestWhole(holders, all());
  LogWhatIsLost(holders, whole);
  return whole;
}

void HeldShards::LogWhatIsLost(const std::vector<Holder>& holders,
                               const std::optional<Version>& whole) const {
  Version newest;
  for (const Holder& holder : holders) newest = std::max(newest, holder.version);
  if (newest.step < 0 || newest == whole) return;
  if (whole.has_value()) {
    return log::Info("the newest " + what_ + " is incomplete: continuing from the step before it",
                     {{"newest_step", newest.step}, {"step", whole->step}});
  }
  std::vector<std::string> ranks;  // of the previous round
  const Ranges missing = MissingOf(holders, newest, all());
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    if (!Common(parts_[rank], missing).empty()) ranks.push_back(std::to_string(rank));
  }
  log::Error(what_ + " lost with the ranks that held it: restoring the newest checkpoint",
             {{"step", newest.step},
              {"lost_with_ranks", ranks.empty() ? "of an earlier round" : Join(ranks, ", ")},
              {"lost_elements", SizeOf(missing)},
              {"of_elements", total()}});
}

Result<void> HeldShards::Redistribute(Communicator& communicator, const Version& version) {
  version_ = version;
  const std::vector<Ranges> assigned = AssignRanges(std::vector<bool>(IndexOf(communicator.world()), true));
  LOCKSTEP_TRY(MoveRanges(communicator, assigned));
  parts_ = Cut(communicator.world());
  log::Info(what_ + " received", {{"step", version.step}, {"bytes", held_bytes()}});
  return {};
}

Result<void> HeldShards::HandOver(Communicator& communicator, const std::vector<bool>& stays) {
  return MoveRanges(communicator, AssignRanges(stays));
}

std::vector<HeldShards::Ranges> HeldShards::AssignRanges(const std::vector<bool>& stays) const {
  const int holders = static_cast<int>(std::count(stays.begin(), stays.end(), true));
  const std::vector<Ranges> parts = Cut(holders);
  std::vector<Ranges> assigned;
  int place = 0;
  for (const bool is_holder : stays) {
    Ranges& of_rank = assigned.emplace_back();
    if (!is_holder) continue;
    for (const int part : PartsOf(place++, holders)) {
      const Ranges& ranges = parts.at(IndexOf(part));
      of_rank.insert(of_rank.end(), ranges.begin(), ranges.end());
    }
  }
  return assigned;
}

Result<void> HeldShards::MoveRanges(Communicator& communicator, const std::vector<Ranges>& assigned) {
  LOCKSTEP_TRY(const std::vector<Holder> holders, ExchangeStates(communicator));
  // All ranks continue from this version now, so none can continue from another one.
  KeepOnly(version_);
  LOCKSTEP_TRY(std::vector<Shard> received, Receive(communicator, holders, assigned));
  const auto old = static_cast<std::ptrdiff_t>(shards_.size());
  std::move(received.begin(), received.end(), std::back_inserter(shards_));
  // A rank that has received everything may still lose a peer that has not, and with it what only this rank
  // holds. So no rank drops its parts before all have theirs.
  LOCKSTEP_TRY(communicator.Barrier());
  shards_.erase(shards_.begin(), shards_.begin() + old);
  return {};
}

Result<std::vector<HeldShards::Shard>> HeldShards::Receive(Communicator& communicator,
                                                           const std::vector<Holder>& holders,
                                                           const std::vector<Ranges>& assigned) const {
  const at::NoGradGuard no_grad;
  LOCKSTEP_CHECK(MissingOf(holders, version_, all()).empty(), "the version is incomplete");
  const std::vector<Ranges> given = GivenBy(holders, version_, total());
  const std::vector<Ranges> wanted = WantedBy(holders, version_, assigned);
  const std::size_t me = IndexOf(communicator.rank());
  std::vector<std::vector<at::Tensor>> received;  // by slot, then by range that this rank wants
  for (std::size_t slot = 0; slot < slot_count_; ++slot) {
    LOCKSTEP_TRY(std::vector<at::Tensor> of_slot, Exchange(communicator, {slot, version_, given, wanted}));
    received.push_back(std::move(of_slot));
  }
  std::vector<Shard> shards;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, what_, [&] {
    std::size_t next = 0;  // of those received
    for (const Range& range : assigned[me]) {
      const auto held = std::find_if(shards_.begin(), shards_.end(), [&](const Shard& shard) {
        return shard.version == version_ && shard.range == range;
      });
      std::vector<at::Tensor> slots;
      slots.reserve(slot_count_);
      for (std::size_t slot = 0; slot < slot_count_; ++slot) {
        // A restored part is in ordinary host memory.
        slots.push_back(held == shards_.end() ? received[slot][next] : OnOwnDevice(held->slots[slot]));
      }
      if (held == shards_.end()) ++next;
      shards.push_back({version_, range, std::move(slots)});
    }
  }));
  return shards;
}

at::Tensor HeldShards::OnOwnDevice(const at::Tensor& slot) const {
  const bool is_there =
      slot.device() == slot_options_.device() && (!slot_options_.pinned_memory() || slot.is_pinned());
  return is_there ? slot : at::empty(slot.sizes(), slot_options_).copy_(slot);
}

Result<std::vector<at::Tensor>> HeldShards::Exchange(Communicator& communicator, const Move& move) const {
  std::vector<at::Tensor> mine;
  // Reused for all chunks: Gloo's threads release the tensors of a chunk late, so the next one would take
  // other memory.
  Chunk chunk;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, what_, [&] {
    for (const Range& range : move.wanted[IndexOf(communicator.rank())])
      mine.push_back(at::zeros({range.size()}, slot_options_));
    chunk = {at::empty({0}, options_), at::empty({0}, options_)};
  }));
  const auto is_nothing = [](const Ranges& ranges) { return SizeOf(ranges) == 0; };
  if (std::all_of(move.wanted.begin(), move.wanted.end(), is_nothing)) return mine;
  int64_t most = 0;  // elements that any rank sends
  for (const Ranges& given : move.given) most = std::max(most, SizeOf(given));
  const int64_t size =
      kExchangeChunkBytes / static_cast<int64_t>(options_.dtype().itemsize()) / communicator.world();
  for (int64_t begin = 0; begin < most; begin += size) {
    std::vector<Ranges> given;
    given.reserve(move.given.size());
    for (const Ranges& of_rank : move.given) given.push_back(Section(of_rank, begin, size));
    LOCKSTEP_TRY(ExchangeChunk(communicator, {move.slot, move.version, given, move.wanted}, chunk, mine));
  }
  return mine;
}

Result<void> HeldShards::ExchangeChunk(Communicator& communicator, const Move& move, Chunk& chunk,
                                       const std::vector<at::Tensor>& mine) const {
  const std::size_t me = IndexOf(communicator.rank());
  const Ranges& wanted = move.wanted[me];
  std::vector<int64_t> sent_rows;
  std::vector<int64_t> rows;
  Ranges incoming;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the " + what_, [&] {
    std::vector<at::Tensor> outgoing;
    for (std::size_t rank = 0; rank < move.wanted.size(); ++rank) {
      const Ranges to = Common(move.given[me], move.wanted[rank]);
      const Ranges from = Common(move.given[rank], wanted);
      for (const Range& range : to)
        outgoing.push_back(SliceOf(move.slot, move.version, range).to(chunk.sent.device()));
      incoming.insert(incoming.end(), from.begin(), from.end());
      sent_rows.push_back(SizeOf(to));
      rows.push_back(SizeOf(from));
    }
    chunk.sent.resize_({std::accumulate(sent_rows.begin(), sent_rows.end(), int64_t{0})});
    if (!outgoing.empty()) at::cat_out(chunk.sent, outgoing);
    chunk.received.resize_({SizeOf(incoming)});
  }));
  LOCKSTEP_TRY(communicator.AllToAll(chunk.received, rows, chunk.sent, sent_rows));
  return CatchTorch(ErrorCode::kInternal, "unpacking the " + what_, [&] {
    int64_t read = 0;
    for (const Range& piece : incoming) {
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i].begin <= piece.begin && piece.end <= wanted[i].end)
          mine[i]
              .narrow(0, piece.begin - wanted[i].begin, piece.size())
              .copy_(chunk.received.narrow(0, read, piece.size()));
      }
      read += piece.size();
    }
  });
}

at::Tensor HeldShards::SliceOf(std::size_t slot, const Version& version, const Range& range) const {
  const auto holds = [&](const Shard& shard) {
    return shard.version == version && shard.range.begin <= range.begin && range.end <= shard.range.end;
  };
  const auto shard = std::find_if(shards_.begin(), shards_.end(), holds);
  LOCKSTEP_CHECK(shard != shards_.end(), "the requested shard is not local");
  return shard->slots[slot].narrow(0, range.begin - shard->range.begin, range.size());
}

Holder HeldShards::Myself() const {
  Holder holder{.version = version_, .held = {}};
  for (const Shard& shard : shards_) holder.held.push_back({shard.version, shard.range});
  return holder;
}

Result<std::vector<Holder>> HeldShards::ExchangeStates(Communicator& communicator) const {
  const Holder myself = Myself();
  const std::vector<int64_t> count = {static_cast<int64_t>(myself.held.size())};
  LOCKSTEP_TRY(const auto counts, communicator.AllGather(count));
  const auto most = static_cast<std::size_t>(std::max_element(counts.begin(), counts.end())->front());
  std::vector<int64_t> mine = {myself.version.step, myself.version.round, count.front()};
  for (const Holding& holding : myself.held) {
    mine.insert(mine.end(),
                {holding.version.step, holding.version.round, holding.range.begin, holding.range.end});
  }
  mine.resize(kNumbersBeforeHoldings + most * kNumbersOfAHolding);
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine));
  std::vector<Holder> holders;
  holders.reserve(rows.size());
  for (const auto& row : rows) holders.push_back(DecodeHolder(row));
  return holders;
}

}  // namespace lockstep::train
