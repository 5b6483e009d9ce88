#include "runtime/train/shards/held_shards.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {

using comm::CatchTorch;
using comm::Communicator;

namespace {

// A device copies asynchronously from page-locked memory only.
at::TensorOptions SlotOptions(const at::TensorOptions& options, bool in_host_memory) {
  const bool is_elsewhere = in_host_memory && !options.device().is_cpu();
  return is_elsewhere ? options.device(at::kCPU).pinned_memory(true) : options;
}

}  // namespace

HeldShards::HeldShards(const std::vector<NamedTensor>& parameters, const std::vector<std::string>& slot_names,
                       const at::TensorOptions& options, bool begins_at_zero, Copies copies, std::string what,
                       bool in_host_memory)
    : begins_at_zero_(begins_at_zero),
      copies_(copies),
      what_(std::move(what)),
      options_(options),
      slot_options_(SlotOptions(options, in_host_memory)),
      slot_count_(slot_names.size()) {
  for (const NamedTensor& parameter : parameters) {
    begins_.push_back(total_);
    sizes_.push_back(parameter.tensor.numel());
    total_ += sizes_.back();
  }
  for (const std::string& slot : slot_names) {
    for (const NamedTensor& parameter : parameters)
      described_.push_back(
          {slot + parameter.name, at::empty(parameter.tensor.sizes(), options_.device(at::kMeta))});
  }
}

Pieces HeldShards::PiecesOf(const Range& range) const {
  Pieces pieces;
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), range.begin);
  for (auto i = static_cast<std::size_t>(after - begins_.begin()) - 1; i < sizes_.size(); ++i) {
    const int64_t begin = begins_[i];
    const Range piece{std::max(range.begin, begin), std::min(range.end, begin + sizes_[i])};
    if (begin >= range.end) break;
    if (piece.size() > 0) pieces.push_back({i, {piece.begin - begin, piece.end - begin}});
  }
  return pieces;
}

void HeldShards::KeepOnly(const Version& version) {
  std::erase_if(shards_, [&](const Shard& shard) { return shard.version != version; });
}

Range HeldShards::PartOf(int rank, int world) const { return CutEvenly(sizes_, world).at(IndexOf(rank)); }

void HeldShards::Load(int64_t step, const Range& range, std::vector<at::Tensor> slots) {
  version_ = {step, round_};
  shards_.push_back({version_, range, std::move(slots)});
}

Result<std::vector<NamedTensor>> HeldShards::Collect(Communicator& communicator,
                                                     const std::vector<int>& ranks) const {
  std::vector<NamedTensor> tensors = described_;
  const std::vector<Ranges> given = GivenBy(HoldersOfParts(), version_, total_);
  for (std::size_t slot = 0; slot < slot_count_; ++slot) {
    const std::size_t first = slot * sizes_.size();
    std::vector<Ranges> wanted(parts_.size());
    int64_t begin = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      wanted.at(IndexOf(ranks.at(first + i))).push_back({begin, begin + sizes_[i]});
      begin += sizes_[i];
    }
    LOCKSTEP_TRY(const std::vector<at::Tensor> collected,
                 Exchange(communicator, {slot, version_, given, wanted}));
    auto next = collected.begin();
    for (std::size_t i = first; i < first + sizes_.size(); ++i) {
      if (ranks[i] == communicator.rank()) tensors[i].tensor = (next++)->view(tensors[i].tensor.sizes());
    }
  }
  return tensors;
}

std::vector<Holder> HeldShards::HoldersOfParts() const {
  std::vector<Holder> holders;
  for (const Ranges& part : parts_) {
    Holder& holder = holders.emplace_back(Holder{.version = version_, .held = {}});
    for (const Range& range : part) holder.held.push_back({version_, range});
  }
  return holders;
}

bool HeldShards::holds_a_part() const {
  const int64_t held = SizeOf(GivenBy({Myself()}, version_, total()).front());
  return held > 0 && held < total();
}

Result<std::vector<NamedTensor>> HeldShards::Whole() const {
  Ranges held = GivenBy({Myself()}, version_, total()).front();
  if (SizeOf(held) < total()) {
    return Error{ErrorCode::kNotFound, "this rank holds " + std::to_string(SizeOf(held)) + " of " +
                                           std::to_string(total()) + " elements of the " + what_};
  }
  std::sort(held.begin(), held.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<NamedTensor> tensors = described_;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, what_, [&] {
    auto tensor = tensors.begin();
    for (std::size_t slot = 0; slot < slot_count_; ++slot) {
      int64_t begin = 0;
      for (const int64_t size : sizes_) {
        std::vector<at::Tensor> pieces;
        for (const Range& piece : Common({{begin, begin + size}}, held))
          pieces.push_back(SliceOf(slot, version_, piece));
        tensor->tensor = at::cat(pieces).view(tensor->tensor.sizes());
        begin += size;
        ++tensor;
      }
    }
  }));
  return tensors;
}

int64_t HeldShards::LargestSlotBytes(int world) const {
  const std::vector<Ranges> parts = Cut(world);
  int64_t most = 0;
  for (int position = 0; position < world; ++position) {
    int64_t elements = 0;
    for (const int part : PartsOf(position, world)) elements += SizeOf(parts.at(IndexOf(part)));
    most = std::max(most, elements);
  }
  return most * static_cast<int64_t>(options_.dtype().itemsize());
}

int64_t HeldShards::held_bytes() const {
  std::set<const void*> counted;
  int64_t bytes = 0;
  for (const Shard& shard : shards_) {
    for (const at::Tensor& slot : shard.slots) {
      if (counted.insert(slot.const_data_ptr()).second) bytes += static_cast<int64_t>(slot.nbytes());
    }
  }
  return bytes;
}

}  // namespace lockstep::train
