#include "runtime/train/fsdp/sharded_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/comm/torch_error.h"
#include "runtime/parallel/shared_sum.h"
#include "runtime/train/step/gradients.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

// Vectorised kernels begin at a multiple of it.
constexpr int64_t kPieceMultiple = 16;

std::vector<std::string> SlotNames(const api::OptimizerSpec& spec) {
  std::vector<std::string> names = SlotPrefixes(spec);
  names.insert(names.begin(), "");  // the parameter itself
  return names;
}

at::DataPtr TakeMemory(const at::Tensor& tensor) {
  return tensor.storage().set_data_ptr(at::DataPtr(nullptr, tensor.device()));
}

}  // namespace

Result<std::unique_ptr<ShardedLayers>> ShardedLayers::Make(const api::TrainingSpec& spec,
                                                           std::shared_ptr<Model> model, at::Device device,
                                                           Copies copies) {
  std::unique_ptr<ShardedLayers> made;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&]() -> Result<void> {
    LOCKSTEP_TRY(Units units, DivideIntoUnits(spec, *model));
    made.reset(new ShardedLayers(spec, std::move(model), std::move(units), device, copies));
    return {};
  }));
  return made;
}

ShardedLayers::ShardedLayers(const api::TrainingSpec& spec, std::shared_ptr<Model> model, Units units,
                             at::Device device, Copies copies)
    : HeldShards(units.parameters, SlotNames(spec.optimizer), at::TensorOptions(device).dtype(at::kFloat),
                 /*begins_at_zero=*/false, copies, "layers and optimizer state", spec.fsdp.cpu_offload),
      spec_(spec.optimizer),
      is_offloaded_(spec.fsdp.cpu_offload),
      sharding_group_(spec.fsdp.sharding_group.value_or(0)),
      model_(std::move(model)),
      layers_(std::move(units.layers)),
      parameters_(std::move(units.parameters)),
      units_(std::move(units.all)),
      of_layer_(std::move(units.of_layer)),
      shared_(std::move(units.shared)) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const at::Tensor& flat = flats_.emplace_back(at::empty({unit.range.size()}, options().dtype(unit.type)));
    int64_t begin = 0;
    for (std::size_t p = unit.first; p < unit.first + unit.count; ++p) {
      at::Tensor& parameter = parameters_[p].tensor;
      initial_.push_back(parameter.variable_data());
      parameter.set_data(flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
      begin += parameter.numel();
    }
    Hide(i);
  }
}

int64_t ShardedLayers::GatheredBytes(const UnitNumbers& units) const {
  int64_t bytes = 0;
  for (const std::size_t unit : units)
    bytes += units_[unit].range.size() * static_cast<int64_t>(at::elementSize(units_[unit].type));
  return bytes;
}

// Most is in use when the gradients of a layer are summed on the way back (LayerPass::Open): the layer before
// it is open, and the one before that is being gathered.
StateMemory ShardedLayers::Memory(int world) const {
  int64_t most = 0;
  for (std::size_t layer = 0; layer < of_layer_.size(); ++layer) {
    int64_t bytes = 2 * GatheredBytes(of_layer_[layer]);  // gradients that are sent, and those received
    for (std::size_t open = layer - std::min<std::size_t>(layer, 2); open <= layer; ++open)
      bytes += GatheredBytes(of_layer_[open]);
    most = std::max(most, bytes);
  }
  const int64_t slot = LargestSlotBytes(world);
  const int64_t moments = (slot_count() - 1) * slot;
  StateMemory memory{.gradients = slot, .gathered = most + 3 * GatheredBytes(shared_)};
  if (is_offloaded_) {
    memory.host = slot + moments + slot;  // and the gradient while it is updated
  } else {
    memory.parameters = slot;
    memory.optimizer = moments;
  }
  return memory;
}

std::vector<HeldShards::Ranges> ShardedLayers::Cut(int holders) const {
  const int group = GroupOf(holders);
  std::vector<Ranges> parts;
  for (int holder = 0; holder < holders; ++holder) {
    const int part = holder % group;
    Ranges& ranges = parts.emplace_back();
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const Range& all = units_[unit].range;
      const int64_t piece = PieceOf(unit, group);
      ranges.push_back(
          {std::min(all.begin + part * piece, all.end), std::min(all.begin + (part + 1) * piece, all.end)});
    }
  }
  return parts;
}

Holder ShardedLayers::Myself() const {
  Holder holder = HeldShards::Myself();
  if (pending_.step < 0) return holder;
  const std::vector<Holding> held = holder.held;
  for (const Holding& holding : held) holder.held.push_back({pending_, holding.range});
  return holder;
}

// A rank's own part comes first, and has a range of each unit.
const HeldShards::Shard& ShardedLayers::Mine(std::size_t unit) const { return shards().at(unit); }
HeldShards::Shard& ShardedLayers::Mine(std::size_t unit) { return shards().at(unit); }

int64_t ShardedLayers::PieceOf(std::size_t unit, int group) const {
  const int64_t each = (units_[unit].range.size() + group - 1) / group;
  return (each + kPieceMultiple - 1) / kPieceMultiple * kPieceMultiple;
}

at::Tensor ShardedLayers::PaddedPiece(std::size_t unit, int group) const {
  // The piece is not updated before the sum of the step, so not before it is copied.
  const at::Tensor mine =
      Mine(unit).slots.front().to(options().dtype(units_[unit].type), /*non_blocking=*/true);
  const int64_t padding = PieceOf(unit, group) - mine.numel();
  return padding == 0 ? mine : at::cat({mine, at::zeros({padding}, mine.options())});
}

std::vector<WeightAndAverage> ShardedLayers::Averages() const {
  const at::NoGradGuard no_grad;
  std::vector<WeightAndAverage> averages;
  if (!spec_.weight_average) return averages;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::vector<at::Tensor>& slots = Mine(unit).slots;
    averages.push_back({slots.at(0), slots.at(0) + slots.at(1)});
  }
  return averages;
}

void ShardedLayers::Show(std::size_t unit, const at::Tensor& gathered) {
  const at::Storage& storage = flats_[unit].storage();
  const std::size_t bytes = gathered.storage().nbytes();
  storage.set_data_ptr_noswap(TakeMemory(gathered));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

void ShardedLayers::Hide(std::size_t unit) {
  const at::Tensor& flat = flats_[unit];
  TakeMemory(flat).clear();
  flat.storage().unsafeGetStorageImpl()->set_nbytes(0);
}

void ShardedLayers::LoadFresh(int rank, int world, const Model* fresh) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> whole = initial_;
  if (fresh != nullptr) {
    whole.clear();
    const auto of_fresh = fresh->named_parameters();
    for (const NamedTensor& parameter : parameters_) whole.push_back(of_fresh[parameter.name].detach());
  }
  const std::size_t slots = described().size() / parameters();
  shards().clear();
  const Ranges mine = Cut(world).at(IndexOf(rank));
  for (const Range& range : mine) {
    std::vector<at::Tensor> pieces = {at::empty({0})};
    for (const auto& [i, piece] : PiecesOf(range))
      pieces.push_back(whole[i].reshape(-1).narrow(0, piece.begin, piece.size()));
    std::vector<at::Tensor> of_range = {at::cat(pieces)};
    while (of_range.size() < slots) of_range.push_back(at::zeros({range.size()}));
    Load(0, range, std::move(of_range));
  }
}

void ShardedLayers::BeginStep() {
  pending_ = {};
  ForgetGradients();
  // A backward pass that the end of a round broke leaves those that it had not summed yet.
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ShardedLayers::ForgetGradients() {
  for (Shard& shard : shards()) shard.gradient.reset();
}

at::Tensor ShardedLayers::TakeGradients(std::size_t index, int group) {
  const at::NoGradGuard no_grad;
  const Unit& unit = units_[index];
  const at::TensorOptions of_unit = options().dtype(unit.type);
  std::vector<at::Tensor> gradients;
  for (std::size_t p = unit.first; p < unit.first + unit.count; ++p) {
    at::Tensor& gradient = parameters_[p].tensor.mutable_grad();
    gradients.push_back(gradient.defined() ? gradient.reshape(-1)
                                           : at::zeros({parameters_[p].tensor.numel()}, of_unit));
    gradient.reset();
  }
  gradients.push_back(at::zeros({PieceOf(index, group) * group - unit.range.size()}, of_unit));
  return at::cat(gradients);
}

void ShardedLayers::AddGradient(std::size_t unit, const at::Tensor& sum) {
  const at::NoGradGuard no_grad;
  Shard& shard = Mine(unit);
  const at::Tensor mine = sum.narrow(0, 0, shard.range.size());
  at::Tensor& gradient = shard.gradient;
  if (gradient.defined()) {
    gradient.add_(mine);
  } else {
    gradient = mine;
  }
}

double ShardedLayers::SquaresOfGradients() const {
  std::vector<at::Tensor> gradients;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (Mine(unit).range.size() > 0) gradients.push_back(Mine(unit).gradient);
  }
  return SumOfSquares(gradients);
}

int64_t ShardedLayers::LastNotFinite() const {
  int64_t last = -1;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const Pieces pieces = PiecesOf(Mine(unit).range);
    const std::vector<at::Tensor> gradients = SplitByPieces(Mine(unit).gradient, pieces);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!std::isfinite(gradients[i].norm().item<double>()))
        last = std::max(last, static_cast<int64_t>(pieces[i].first));
    }
  }
  return last;
}

std::vector<std::string> ShardedLayers::TrainedNames() const {
  std::vector<std::string> names;
  names.reserve(parameters_.size());
  for (const NamedTensor& parameter : parameters_) names.push_back(parameter.name);
  return names;
}

Result<void> ShardedLayers::SumOverGroups(Communicator& communicator) {
  const int world = communicator.world();
  const int group = GroupOf(world);
  if (group == world) return {};
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::vector<parallel::SharedTensor> pieces;  // of all ranks of a group
    for (int part = 0; part < group; ++part) {
      parallel::SharedTensor& piece = pieces.emplace_back();
      piece.elements = parts()[IndexOf(part)][unit].size();
      if (communicator.rank() % group == part) piece.tensor = Mine(unit).gradient;
      for (int holder = part; holder < world; holder += group) piece.holders.push_back(holder);
    }
    LOCKSTEP_TRY(parallel::SumOverHolders(communicator, pieces, options()));
  }
  return {};
}

Result<void> ShardedLayers::ShareGradients(Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const int me = communicator.rank();
  const std::vector<int> mine = PartsOf(me, communicator.world());
  if (mine.size() == 1) return {};
  std::vector<int64_t> receivers(IndexOf(communicator.world()), 0);  // by rank, 1: holds a copy of mine
  for (int rank = 0; rank < communicator.world(); ++rank) {
    const std::vector<int> theirs = PartsOf(rank, communicator.world());
    receivers[IndexOf(rank)] = std::count(theirs.begin() + 1, theirs.end(), me);
  }
  const std::vector<int> owners(mine.begin() + 1, mine.end());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::vector<int64_t> sent_rows;
    std::vector<int64_t> rows;
    at::Tensor sent;
    at::Tensor received;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing gradients", [&] {
      for (std::size_t rank = 0; rank < receivers.size(); ++rank) {
        const bool owns = std::find(owners.begin(), owners.end(), static_cast<int>(rank)) != owners.end();
        sent_rows.push_back(receivers[rank] * Mine(unit).range.size());
        rows.push_back(owns ? parts()[rank][unit].size() : 0);
      }
      // Once for each receiver, of which there are as many as owners; one receiver needs no copy.
      sent = Mine(unit).gradient.expand({static_cast<int64_t>(owners.size()), -1}).reshape({-1});
      received = at::empty({std::accumulate(rows.begin(), rows.end(), int64_t{0})}, options());
    }));
    LOCKSTEP_TRY(communicator.AllToAll(received, rows, sent, sent_rows));
    for (std::size_t copy = 0; copy < owners.size(); ++copy) {
      const auto owner = static_cast<std::ptrdiff_t>(owners[copy]);
      const int64_t begin = std::accumulate(rows.begin(), rows.begin() + owner, int64_t{0});
      Shard& shard = shards().at((copy + 1) * units_.size() + unit);
      shard.gradient = received.narrow(0, begin, shard.range.size());
    }
  }
  return {};
}

void ShardedLayers::AwaitEnd(double learning_rate) {
  pending_ = {version().step + 1, round()};
  pending_learning_rate_ = learning_rate;
}

void ShardedLayers::Update(double factor) {
  for (Shard& shard : shards()) {
    if (shard.range.size() == 0) continue;
    const Pieces pieces = PiecesOf(shard.range);
    if (shard.optimizer == nullptr) {
      shard.optimizer = std::make_shared<ShardOptimizer>(spec_, parameters_, pieces,
                                                         SplitByPieces(shard.slots.front(), pieces),
                                                         std::span(shard.slots).subspan(1));
    }
    const at::Tensor gradient = shard.gradient.mul_(factor).to(shard.slots.front().device());
    shard.optimizer->Step(SplitByPieces(gradient, pieces), version().step, pending_learning_rate_);
  }
}

Result<StepVerdict> ShardedLayers::EndStep(const StepEnd& end, double loss_scale) {
  const StepVerdict verdict = VerdictOf(end, loss_scale);
  const Version next = std::exchange(pending_, {});
  const Result<void> done = CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    const at::NoGradGuard no_grad;
    if (verdict.applied) Update(FactorFor(verdict.gradient_norm, end.count * loss_scale, spec_.clip_norm));
  });
  if (!done.ok()) {
    shards().clear();  // a half-taken step is not a valid state
    ForgetVersion();
    return done.error();
  }
  for (Shard& shard : shards()) shard.version = next;
  SetVersion(next);
  if (verdict.applied) ForgetGradients();
  return verdict;
}

}  // namespace lockstep::train
