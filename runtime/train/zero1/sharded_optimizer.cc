#include "runtime/train/zero1/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
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
    : HeldShards(parameters, SlotPrefixes(spec), parameters.front().tensor.options().requires_grad(false),
                 /*begins_at_zero=*/true, copies, "optimizer state"),
      spec_(spec),
      parameters_(std::move(parameters)) {}

std::vector<HeldShards::Ranges> ShardedOptimizer::Cut(int holders) const {
  const bool is_elementwise = api::IsElementwise(spec_.name);
  std::vector<Ranges> parts;
  for (const Range& part : is_elementwise ? CutEvenly(sizes(), holders) : CutBetweenTensors(sizes(), holders))
    parts.push_back({part});
  return parts;
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

void ShardedOptimizer::Update(Shard& shard, double learning_rate) const {
  if (shard.range.size() == 0) return;
  if (shard.optimizer == nullptr)
    shard.optimizer = std::make_shared<ShardOptimizer>(spec_, parameters_, PiecesOf(shard.range),
                                                       ViewsOf(shard.range), shard.slots);
  shard.optimizer->Step(GradientsOf(shard.range), version().step, learning_rate);
}

Result<void> ShardedOptimizer::Gather(Communicator& communicator, const Views& given,
                                      const Views& into) const {
  const int64_t world = communicator.world();
  const Range& mine = parts().at(IndexOf(communicator.rank())).front();
  int64_t largest = 0;
  for (const Ranges& part : parts()) largest = std::max(largest, SizeOf(part));
  const int64_t most = kGatherChunkBytes / static_cast<int64_t>(options().dtype().itemsize()) / world;
  at::Tensor sent;
  at::Tensor all;
  for (int64_t begin = 0; begin < largest; begin += most) {
    const int64_t size = std::min(most, largest - begin);
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
      sent = begin == 0 ? at::zeros({size}, options()) : sent.narrow(0, 0, size);
      all = begin == 0 ? at::empty({size * world}, options()) : all.narrow(0, 0, size * world);
      const Range piece = PieceOf(mine, begin, size);
      if (piece.size() == 0) return;
      at::Tensor flat = sent.narrow(0, 0, piece.size());
      at::cat_out(flat, given(piece));
    }));
    LOCKSTEP_TRY(communicator.AllGatherInto(all, sent));
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "collecting the parameters", [&] {
      for (std::size_t rank = 0; rank < parts().size(); ++rank)
        CopyInto(into(PieceOf(parts()[rank].front(), begin, size)),
                 all.narrow(0, static_cast<int64_t>(rank) * size, size));
    }));
  }
  return {};
}

Result<void> ShardedOptimizer::Step(Communicator& communicator, double learning_rate) {
  const at::NoGradGuard no_grad;
  KeepOnly(version());  // all ranks have committed the step before when one begins the next
  const Version next{version().step + 1, round()};
  std::vector<Shard> before;
  std::vector<at::Tensor> parameters_before;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    for (const Shard& shard : shards()) {
      std::vector<at::Tensor> slots;
      slots.reserve(shard.slots.size());
      for (const at::Tensor& slot : shard.slots) slots.push_back(slot.clone());
      parameters_before.push_back(shard.range.size() == 0 ? at::Tensor() : FlatParameters(shard.range));
      before.push_back({shard.version, shard.range, std::move(slots)});
    }
  }));
  const Result<void> updated = CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    for (Shard& shard : shards()) Update(shard, learning_rate);
  });
  Result<void> gathered = updated;
  if (updated.ok()) {
    gathered = Gather(
        communicator, [this](const Range& range) { return ViewsOf(range); },
        [this](const Range& range) { return GradientsOf(range); });
  }
  if (!updated.ok()) shards().clear();
  for (Shard& shard : shards()) shard.version = next;
  if (gathered.ok()) {
    Result<void> taken = CatchTorch(ErrorCode::kInternal, "taking the parameters", [&] {
      for (const NamedTensor& parameter : parameters_) parameter.tensor.copy_(parameter.tensor.grad());
    });
    SetVersion(taken.ok() ? next : Version{});  // a half-taken step is not a valid state
    return taken;
  }
  // Other ranks may have received all parts: then they need this rank's updated part, otherwise the old one.
  // So it keeps both.
  const Result<void> undone = CatchTorch(ErrorCode::kInternal, "taking the parameters back", [&] {
    for (std::size_t i = 0; i < before.size(); ++i) CopyInto(ViewsOf(before[i].range), parameters_before[i]);
  });
  if (!undone.ok()) SetVersion({});
  std::move(before.begin(), before.end(), std::back_inserter(shards()));
  return gathered;
}

Result<std::vector<WeightAndAverage>> ShardedOptimizer::Averages(Communicator& communicator) const {
  const at::NoGradGuard no_grad;
  std::vector<WeightAndAverage> averages;
  if (!spec_.weight_average) return averages;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "averages", [&] {
    averages.reserve(parameters_.size());
    for (const NamedTensor& parameter : parameters_)
      averages.push_back({parameter.tensor, at::empty_like(parameter.tensor.detach())});
  }));
  const Shard& mine = shards().front();
  LOCKSTEP_TRY(Gather(
      communicator,
      [&](const Range& range) -> std::vector<at::Tensor> {
        return {mine.slots.front().narrow(0, range.begin - mine.range.begin, range.size())};
      },
      [&](const Range& range) {
        std::vector<at::Tensor> views;
        for (const auto& [i, piece] : PiecesOf(range))
          views.push_back(averages[i].average.view(-1).narrow(0, piece.begin, piece.size()));
        return views;
      }));
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "averages", [&] {
    for (const WeightAndAverage& each : averages) each.average.add_(each.weight);
  }));
  return averages;
}

void ShardedOptimizer::Skip() {
  KeepOnly(version());
  const Version next{version().step + 1, round()};
  const std::vector<Shard> before = shards();
  for (const Shard& shard : before) shards().push_back({next, shard.range, shard.slots});
  SetVersion(next);
}

void ShardedOptimizer::StartAfresh() { SetVersion({0, round()}); }

}  // namespace lockstep::train
