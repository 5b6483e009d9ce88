#include "runtime/train/zero1/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

// The elements of a part that are sent together, from its `begin`th on.
Range PieceOf(const Range& part, int64_t begin, int64_t size) {
  return {std::min(part.begin + begin, part.end), std::min(part.begin + begin + size, part.end)};
}

void CopyInto(const std::vector<at::Tensor>& views, const at::Tensor& flat) {
  int64_t begin = 0;
  for (const at::Tensor& view : views) {
    view.copy_(flat.narrow(0, begin, view.numel()));
    begin += view.numel();
  }
}

Error CannotBeDivided(const std::string& parameter, const std::string& problem) {
  return {ErrorCode::kInvalidArgument,
          "spec.training.strategy: zero1 cannot divide " + parameter + ", which " + problem + "; use ddp"};
}

}  // namespace

Result<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Make(const api::OptimizerSpec& spec,
                                                                 std::vector<NamedTensor> parameters,
                                                                 Copies copies) {
  if (parameters.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.is_contiguous()) return CannotBeDivided(parameter.name, "is not contiguous");
    if (parameter.tensor.scalar_type() != parameters.front().tensor.scalar_type())
      return CannotBeDivided(parameter.name, "is of another type than " + parameters.front().name);
  }
  return std::unique_ptr<ShardedOptimizer>(new ShardedOptimizer(spec, std::move(parameters), copies));
}

ShardedOptimizer::ShardedOptimizer(const api::OptimizerSpec& spec, std::vector<NamedTensor> parameters,
                                   Copies copies)
    : spec_(spec),
      parameters_(std::move(parameters)),
      settings_(SettingsOf(spec, parameters_)),
      copies_(copies) {
  for (const NamedTensor& parameter : parameters_) {
    begins_.push_back(total_);
    sizes_.push_back(parameter.tensor.numel());
    total_ += sizes_.back();
  }
  // A dummy parameter reveals the optimizer's state slots.
  const auto sample = MakeOptimizer(spec, {{"", at::zeros({1})}});
  slot_count_ = sample->state().size();
  for (const NamedTensor& slot : sample->state()) {
    for (const NamedTensor& parameter : parameters_) {
      const auto options = parameter.tensor.options().device(at::kMeta).requires_grad(false);
      described_.push_back({slot.name + parameter.name, at::empty(parameter.tensor.sizes(), options)});
    }
  }
}

std::vector<std::pair<std::size_t, Range>> ShardedOptimizer::PiecesOf(const Range& range) const {
  std::vector<std::pair<std::size_t, Range>> pieces;
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), range.begin);
  for (auto i = static_cast<std::size_t>(after - begins_.begin()) - 1; i < sizes_.size(); ++i) {
    const int64_t begin = begins_[i];
    const Range piece{std::max(range.begin, begin), std::min(range.end, begin + sizes_[i])};
    if (begin >= range.end) break;
    if (piece.size() > 0) pieces.push_back({i, {piece.begin - begin, piece.end - begin}});
  }
  return pieces;
}

std::vector<at::Tensor> ShardedOptimizer::ViewsOf(const Range& range) const {
  std::vector<at::Tensor> views;
  for (const auto& [i, piece] : PiecesOf(range))
    views.push_back(parameters_[i].tensor.detach().view(-1).narrow(0, piece.begin, piece.size()));
  return views;
}

at::Tensor ShardedOptimizer::FlatParameters(const Range& range) const { return at::cat(ViewsOf(range)); }

std::vector<at::Tensor> ShardedOptimizer::GradientsOf(const Range& range) const {
  std::vector<at::Tensor> views;
  for (const auto& [i, piece] : PiecesOf(range))
    views.push_back(parameters_[i].tensor.grad().view(-1).narrow(0, piece.begin, piece.size()));
  return views;
}

ShardedOptimizer::Shard ShardedOptimizer::MakeShard(const Version& version, const Range& range,
                                                    std::vector<at::Tensor> slots) const {
  Shard shard{version, range, std::move(slots), ViewsOf(range), nullptr};
  if (shard.parameters.empty()) return shard;
  std::vector<NamedTensor> named;
  named.reserve(shard.parameters.size());
  for (const at::Tensor& view : shard.parameters) named.push_back({"", view});
  std::vector<at::Tensor> state;  // views of the flat slots
  for (const at::Tensor& slot : shard.slots) {
    int64_t begin = 0;
    for (const at::Tensor& view : shard.parameters) {
      state.push_back(slot.narrow(0, begin, view.numel()));
      begin += view.numel();
    }
  }
  std::vector<ParameterSettings> settings;
  for (const auto& [parameter, piece] : PiecesOf(range)) settings.push_back(settings_[parameter]);
  shard.optimizer = MakeOptimizer(spec_, named, std::move(state), std::move(settings));
  return shard;
}

void ShardedOptimizer::Update(const Shard& shard, double learning_rate) const {
  if (shard.optimizer == nullptr) return;
  const std::vector<at::Tensor> gradients = GradientsOf(shard.range);
  for (std::size_t i = 0; i < gradients.size(); ++i) shard.parameters[i].mutable_grad() = gradients[i];
  shard.optimizer->Step(version_.step, learning_rate);
  for (const at::Tensor& view : shard.parameters) view.mutable_grad().reset();
}

void ShardedOptimizer::KeepOnly(const Version& version) {
  std::erase_if(shards_, [&](const Shard& shard) { return shard.version != version; });
}

Result<void> ShardedOptimizer::GatherIntoGradients(Communicator& communicator) const {
  const int64_t world = communicator.world();
  const Range& mine = parts_.at(IndexOf(communicator.rank()));
  int64_t largest = 0;
  for (const Range& part : parts_) largest = std::max(largest, part.size());
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  const int64_t most = kGatherChunkBytes / static_cast<int64_t>(options.dtype().itemsize()) / world;
  at::Tensor sent;
  at::Tensor all;
  for (int64_t begin = 0; begin < largest; begin += most) {
    const int64_t size = std::min(most, largest - begin);
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
      sent = begin == 0 ? at::zeros({size}, options) : sent.narrow(0, 0, size);
      all = begin == 0 ? at::empty({size * world}, options) : all.narrow(0, 0, size * world);
      const Range piece = PieceOf(mine, begin, size);
      if (piece.size() == 0) return;
      at::Tensor flat = sent.narrow(0, 0, piece.size());
      at::cat_out(flat, ViewsOf(piece));
    }));
    LOCKSTEP_TRY(communicator.AllGatherInto(all, sent));
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "collecting the parameters", [&] {
      for (std::size_t rank = 0; rank < parts_.size(); ++rank)
        CopyInto(GradientsOf(PieceOf(parts_[rank], begin, size)),
                 all.narrow(0, static_cast<int64_t>(rank) * size, size));
    }));
  }
  return {};
}

Result<void> ShardedOptimizer::Step(Communicator& communicator, double learning_rate) {
  const at::NoGradGuard no_grad;
  KeepOnly(version_);  // all ranks have committed the step before when one begins the next
  const Version next{version_.step + 1, round_};
  std::vector<Shard> before;
  std::vector<at::Tensor> parameters_before;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    for (const Shard& shard : shards_) {
      std::vector<at::Tensor> slots;
      slots.reserve(shard.slots.size());
      for (const at::Tensor& slot : shard.slots) slots.push_back(slot.clone());
      parameters_before.push_back(shard.range.size() == 0 ? at::Tensor() : FlatParameters(shard.range));
      before.push_back({shard.version, shard.range, std::move(slots), {}, nullptr});
    }
  }));
  const Result<void> updated = CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    for (const Shard& shard : shards_) Update(shard, learning_rate);
  });
  Result<void> gathered = updated.ok() ? GatherIntoGradients(communicator) : updated;
  if (!updated.ok()) shards_.clear();
  for (Shard& shard : shards_) shard.version = next;
  if (gathered.ok()) {
    Result<void> taken = CatchTorch(ErrorCode::kInternal, "taking the parameters", [&] {
      for (const NamedTensor& parameter : parameters_) parameter.tensor.copy_(parameter.tensor.grad());
    });
    version_ = taken.ok() ? next : Version{};  // a half-taken step is not a valid state
    return taken;
  }
  // Other ranks may have received all parts: then they need this rank's updated part, otherwise the old one.
  // So it keeps both.
  const Result<void> undone = CatchTorch(ErrorCode::kInternal, "taking the parameters back", [&] {
    for (std::size_t i = 0; i < before.size(); ++i) CopyInto(ViewsOf(before[i].range), parameters_before[i]);
  });
  if (!undone.ok()) version_ = {};
  std::move(before.begin(), before.end(), std::back_inserter(shards_));
  return gathered;
}

void ShardedOptimizer::Skip() {
  KeepOnly(version_);
  const std::size_t count = shards_.size();
  for (std::size_t i = 0; i < count; ++i) {
    shards_.push_back({version_, shards_[i].range, shards_[i].slots, {}, nullptr});
    shards_[i].version = {version_.step + 1, round_};
  }
  version_ = {version_.step + 1, round_};
}

Range ShardedOptimizer::PartOf(int rank, int world) const {
  return CutEvenly(sizes_, world).at(IndexOf(rank));
}

void ShardedOptimizer::Load(int64_t step, const Range& range, std::vector<at::Tensor> slots) {
  version_ = {step, round_};
  shards_.push_back({version_, range, std::move(slots), {}, nullptr});
}

void ShardedOptimizer::StartAfresh() { version_ = {0, round_}; }

Result<std::vector<NamedTensor>> ShardedOptimizer::Collect(Communicator& communicator,
                                                           const std::vector<int>& ranks) const {
  std::vector<Ranges> given;
  for (const Range& part : parts_) given.push_back({part});
  std::vector<NamedTensor> tensors = described_;
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

bool ShardedOptimizer::holds_a_part() const {
  const int64_t held = SizeOf(GivenBy({Myself()}, version_, total()).front());
  return held > 0 && held < total();
}

Result<std::vector<NamedTensor>> ShardedOptimizer::Whole() const {
  Ranges held = GivenBy({Myself()}, version_, total()).front();
  if (SizeOf(held) < total()) {
    return Error{ErrorCode::kNotFound, "this rank holds " + std::to_string(SizeOf(held)) + " of " +
                                           std::to_string(total()) + " elements of the optimizer's state"};
  }
  std::sort(held.begin(), held.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<NamedTensor> tensors = described_;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer state", [&] {
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

int64_t ShardedOptimizer::held_bytes() const {
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
