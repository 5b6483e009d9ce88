#include "runtime/train/pipeline/staged_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;
using parallel::LayerRange;

// The numbers that precede the layers in a rank's report about itself.
constexpr std::size_t kNumbersBeforeLayers = 4;
constexpr int64_t kOfNoRound = -1;
constexpr int kDefaultStages = 2;

Error CannotBeDivided(const api::TrainingSpec& spec, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.strategy: " + std::string(api::NameOf(spec.strategy)) +
                                           " cannot divide the model " +
                                           std::string(api::NameOf(spec.model.name)) + ", " + problem};
}

// A placeholder with the shape of `tensor` and the memory of one element. Computing with it yields NaN.
at::Tensor StandInFor(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  const bool has_nan = at::isFloatingType(tensor.scalar_type());
  return at::full({}, has_nan ? std::numeric_limits<double>::quiet_NaN() : -1, options)
      .expand(tensor.sizes());
}

}  // namespace

StagedState::StagedState(const api::TrainingSpec& spec, ModelInput input, std::shared_ptr<Model> model,
                         at::Device device)
    : spec_(spec), input_(std::move(input)), model_(std::move(model)), device_(device) {}

Result<std::unique_ptr<StagedState>> StagedState::Make(const api::TrainingSpec& spec, const ModelInput& input,
                                                       std::shared_ptr<Model> model, at::Device device) {
  auto state = std::unique_ptr<StagedState>(new StagedState(spec, input, std::move(model), device));
  LOCKSTEP_TRY(
      CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] { return state->FindEntries(); }));
  return state;
}

Result<void> StagedState::FindEntries() {
  layers_ = model_->Layers();
  if (layers_.empty()) {
    return CannotBeDivided(
        spec_,
        "which does not say what its layers are: override lockstep::Model::Layers in a plugin, or "
        "use ddp");
  }
  std::map<const void*, std::vector<int>> users;  // of each parameter or buffer
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const auto& module : layers_[layer].modules) {
      std::vector<at::Tensor> used = module->parameters();
      const std::vector<at::Tensor> buffers = module->buffers();
      used.insert(used.end(), buffers.begin(), buffers.end());
      for (const at::Tensor& tensor : used)
        users[tensor.unsafeGetTensorImpl()].push_back(static_cast<int>(layer));
    }
  }
  const auto add = [&](const std::string& name, const at::Tensor& tensor, Kind kind) {
    const bool is_trained = kind == Kind::kParameter && tensor.requires_grad();
    entries_.push_back({name, kind, users[tensor.unsafeGetTensorImpl()], tensor, StandInFor(tensor),
                        tensor.detach(), is_trained});
  };
  for (const auto& parameter : model_->named_parameters())
    add(parameter.key(), parameter.value(), Kind::kParameter);
  for (const auto& buffer : model_->named_buffers()) add(buffer.key(), buffer.value(), Kind::kBuffer);
  costs_.assign(layers_.size(), 0);
  bool any_trained = false;
  for (const Entry& entry : entries_) {
    if (entry.layers.empty())
      return CannotBeDivided(spec_, "whose " + entry.name + " is in none of its layers");
    if (entry.is_trained && (entry.data.scalar_type() != at::kFloat || !entry.data.is_contiguous()))
      return CannotBeDivided(spec_, "whose " + entry.name + " is not contiguous float32");
    for (const int layer : entry.layers)
      costs_[static_cast<std::size_t>(layer)] += static_cast<int64_t>(entry.stand_in.nbytes());
    any_trained = any_trained || entry.is_trained;
  }
  if (!any_trained) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  AddMoments();
  held_.assign(layers_.size(), true);
  return {};
}

void StagedState::AddMoments() {
  const std::size_t count = entries_.size();
  for (const std::string& prefix : SlotPrefixes(spec_.optimizer)) {
    for (std::size_t i = 0; i < count; ++i) {
      const Entry parameter = entries_[i];
      if (!parameter.is_trained) continue;
      entries_.push_back(
          {prefix + parameter.name, Kind::kMoment, parameter.layers, {}, parameter.stand_in, {}, false});
    }
  }
}

std::vector<NamedTensor> StagedState::tensors() const {
  std::vector<NamedTensor> all;
  all.reserve(entries_.size());
  for (const Entry& entry : entries_)
    all.push_back({entry.name, entry.data.defined() ? entry.data : entry.stand_in});
  return all;
}

std::vector<at::Tensor> StagedState::TensorsOf(int rank) const {
  std::vector<at::Tensor> held;
  for (const Entry& entry : entries_) {
    const bool holds = std::find(entry.holders.begin(), entry.holders.end(), rank) != entry.holders.end();
    held.push_back(!holds ? at::Tensor() : entry.data.defined() ? entry.data : entry.stand_in);
  }
  return held;
}

std::vector<bool> StagedState::LayersOf(int rank) const {
  const auto coordinate = mesh_.CoordinateOf(rank);
  return LayersOf(coordinate.has_value() ? ranges_.at(static_cast<std::size_t>(coordinate->stage))
                                         : LayerRange{});
}

bool StagedState::holds_all() const { return std::find(held_.begin(), held_.end(), false) == held_.end(); }

bool StagedState::holds_a_part() const {
  return !holds_all() && std::find(held_.begin(), held_.end(), true) != held_.end();
}

// Stage replicas share the work.
std::vector<int> StagedState::Writers(int world) const {
  std::vector<double> bytes(static_cast<std::size_t>(world), 0);
  std::vector<int> writers;
  for (const Entry& entry : entries_) {
    const auto least = std::min_element(entry.holders.begin(), entry.holders.end(), [&](int a, int b) {
      return bytes[static_cast<std::size_t>(a)] < bytes[static_cast<std::size_t>(b)];
    });
    bytes[static_cast<std::size_t>(*least)] += static_cast<double>(entry.stand_in.nbytes());
    writers.push_back(*least);
  }
  return writers;
}

std::vector<bool> StagedState::LayersToRead(int rank, int world) const {
  std::vector<bool> layers(layers_.size(), false);
  const parallel::Mesh mesh = MeshFor(world);
  const auto coordinate = mesh.CoordinateOf(rank);
  if (!coordinate.has_value()) return layers;
  const LayerRange range =
      parallel::DivideLayers(costs_, mesh.stages).at(static_cast<std::size_t>(coordinate->stage));
  for (int layer = range.begin + coordinate->pipeline; layer < range.end; layer += mesh.pipelines)
    layers[static_cast<std::size_t>(layer)] = true;
  return layers;
}

std::vector<bool> StagedState::AreOf(const std::vector<bool>& layers) const {
  std::vector<bool> are;
  are.reserve(entries_.size());
  for (const Entry& entry : entries_) are.push_back(IsHeldBy(entry, layers));
  return are;
}

void StagedState::Load(int64_t step, const std::vector<bool>& layers,
                       const std::vector<at::Tensor>& tensors) {
  LoadPart({step, kOfNoRound}, layers, tensors);
}

void StagedState::LoadPart(const Version& version, const std::vector<bool>& layers,
                           const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].data = tensors.at(i);
  held_ = layers;
  version_ = version;
  pending_ = {};
}

Result<void> StagedState::StartAfresh() {
  const bool is_as_made = version_.step < 0 && holds_all();
  version_ = {0, kOfNoRound};
  pending_ = {};
  if (is_as_made) return {};
  const Result<std::shared_ptr<Model>> fresh = models::MakeModel(spec_.model, input_, spec_.seed);
  // The spec has created this model before, so the failure has another reason, for example lack of memory.
  if (!fresh.ok()) return Error{ErrorCode::kInternal, fresh.error().message};
  return CatchTorch(ErrorCode::kInternal, "starting afresh", [&] {
    const auto parameters = (*fresh)->named_parameters();
    const auto buffers = (*fresh)->named_buffers();
    for (Entry& entry : entries_) {
      if (entry.kind == Kind::kMoment) entry.data.reset();
      if (entry.kind == Kind::kParameter) entry.data = parameters[entry.name].detach().contiguous();
      if (entry.kind == Kind::kBuffer) entry.data = buffers[entry.name].detach().contiguous();
    }
    held_.assign(layers_.size(), true);
  });
}

void StagedState::Forget() {
  version_ = {};
  pending_ = {};
  held_.assign(layers_.size(), false);
  for (Entry& entry : entries_) entry.data.reset();
}

bool StagedState::IsHeldBy(const Entry& entry, const std::vector<bool>& layers) {
  return std::any_of(entry.layers.begin(), entry.layers.end(),
                     [&](int layer) { return layers.at(static_cast<std::size_t>(layer)); });
}

std::vector<bool> StagedState::LayersOf(const LayerRange& range) const {
  std::vector<bool> layers;
  layers.reserve(layers_.size());
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) layers.push_back(range.Has(layer));
  return layers;
}

std::vector<int> StagedState::HoldersOf(const Entry& entry) const {
  std::vector<int> holders;
  for (int stage = 0; stage < mesh_.stages; ++stage) {
    if (!IsHeldBy(entry, LayersOf(ranges_.at(static_cast<std::size_t>(stage))))) continue;
    const std::vector<int> ranks = mesh_.RanksOf(stage);
    holders.insert(holders.end(), ranks.begin(), ranks.end());
  }
  std::sort(holders.begin(), holders.end());
  return holders;
}

Result<std::vector<StageHolder>> StagedState::ExchangeStates(Communicator& communicator) const {
  std::vector<int64_t> mine = {version_.step, version_.round, pending_.step, pending_.round};
  for (const bool layer : held_) mine.push_back(layer ? 1 : 0);
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine));
  std::vector<StageHolder> holders;
  for (const auto& row : rows) {
    StageHolder& holder = holders.emplace_back();
    holder.version = {row.at(0), row.at(1)};
    holder.pending = {row.at(2), row.at(3)};
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      holder.layers.push_back(row.at(kNumbersBeforeLayers + layer) != 0);
  }
  return holders;
}

// Sends tensor by tensor, in the same order on all ranks. This cannot deadlock: a rank only waits for ranks
// that are at an earlier tensor, and those at the earliest one can always continue.
Result<void> StagedState::Deliver(Communicator& communicator, const Version& version,
                                  const std::vector<LayerRange>& wanted) {
  const at::NoGradGuard no_grad;
  LOCKSTEP_TRY(const std::vector<StageHolder> holders, ExchangeStates(communicator));
  const int me = communicator.rank();
  std::vector<std::vector<bool>> wanted_layers;
  wanted_layers.reserve(wanted.size());
  for (const LayerRange& range : wanted) wanted_layers.push_back(LayersOf(range));
  std::vector<at::Tensor> arrived(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.kind == Kind::kMoment && version.step == 0) continue;  // the moments are all zero
    std::vector<int> givers;
    std::vector<int> takers;
    for (int rank = 0; rank < communicator.world(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const bool has = holders[index].version == version && IsHeldBy(entry, holders[index].layers);
      if (has) givers.push_back(rank);
      if (!has && IsHeldBy(entry, wanted_layers[index])) takers.push_back(rank);
    }
    LOCKSTEP_CHECK(takers.empty() || !givers.empty(), "no rank holds the tensor");
    for (std::size_t n = 0; n < takers.size(); ++n) {
      const int giver = givers[n % givers.size()];
      if (takers[n] == me) {
        LOCKSTEP_TRY(arrived[i], CatchTorch(ErrorCode::kInternal, "receiving the state", [&] {
                       return at::empty(entry.stand_in.sizes(), entry.stand_in.options().device(device_));
                     }));
        LOCKSTEP_TRY(communicator.Receive(arrived[i], giver));
      } else if (giver == me) {
        LOCKSTEP_TRY(const at::Tensor sent, CatchTorch(ErrorCode::kInternal, "sending the state",
                                                       [&] { return entry.data.to(device_).contiguous(); }));
        LOCKSTEP_TRY(communicator.Send(sent, takers[n]));
      }
    }
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (arrived[i].defined()) entries_[i].data = arrived[i];
  }
  const std::vector<bool>& mine = wanted_layers[static_cast<std::size_t>(me)];
  for (std::size_t layer = 0; layer < held_.size(); ++layer) held_[layer] = held_[layer] || mine[layer];
  version_ = version;
  // A rank that has received everything may still lose a peer that has not, and with it what only this rank
  // holds. So no rank drops a layer before all have theirs.
  return communicator.Barrier();
}

parallel::Mesh StagedState::MeshFor(int world) const {
  const bool is_hybrid = spec_.strategy == api::Strategy::kHybrid;
  return parallel::MeshOf(
      world, is_hybrid ? std::optional<int>(spec_.pipeline.stages.value_or(kDefaultStages)) : std::nullopt,
      static_cast<int>(layers_.size()));
}

Result<void> StagedState::Redistribute(Communicator& communicator, const Version& version) {
  mesh_ = MeshFor(communicator.world());
  ranges_ = parallel::DivideLayers(costs_, mesh_.stages);
  std::vector<LayerRange> wanted;
  for (int rank = 0; rank < communicator.world(); ++rank) {
    const auto coordinate = mesh_.CoordinateOf(rank);
    wanted.push_back(coordinate.has_value() ? ranges_.at(static_cast<std::size_t>(coordinate->stage))
                                            : LayerRange{});
  }
  LOCKSTEP_TRY(Deliver(communicator, version, wanted));
  coordinate_ = mesh_.CoordinateOf(communicator.rank());
  range_ = wanted[static_cast<std::size_t>(communicator.rank())];
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "placing the stage", [&] { Settle(); }));
  int64_t bytes = 0;
  for (const Entry& entry : entries_)
    bytes += entry.data.defined() ? static_cast<int64_t>(entry.data.nbytes()) : 0;
  if (!coordinate_.has_value()) {
    log::Warning("this rank is idle: the other ranks form complete pipelines",
                 {{"pipelines", mesh_.pipelines}, {"stages", mesh_.stages}, {"layers", layers_.size()}});
    return {};
  }
  log::Info("stage placed", {{"pipeline", coordinate_->pipeline},
                             {"of_pipelines", mesh_.pipelines},
                             {"stage", coordinate_->stage},
                             {"of_stages", mesh_.stages},
                             {"first_layer", range_.begin},
                             {"layers", range_.end - range_.begin},
                             {"of_layers", layers_.size()},
                             {"bytes", bytes}});
  return {};
}

// Drops what does not belong to this rank's stage.
void StagedState::Settle() {
  const at::NoGradGuard no_grad;
  held_ = LayersOf(range_);
  optimizer_.reset();
  for (Entry& entry : entries_) {
    const bool is_held = IsHeldBy(entry, held_);
    entry.holders = HoldersOf(entry);
    if (entry.kind == Kind::kMoment && is_held && !entry.data.defined()) {
      entry.data = at::zeros(entry.stand_in.sizes(), entry.stand_in.options().device(device_));
    } else {
      entry.data = is_held ? entry.data.to(device_) : at::Tensor();
    }
    if (entry.kind == Kind::kMoment) continue;
    entry.in_model.mutable_grad().reset();
    entry.in_model.set_data(is_held ? entry.data : entry.stand_in);
    if (is_held && entry.is_trained) entry.in_model.mutable_grad() = at::zeros_like(entry.data);
  }
  MakeStageOptimizer();
}

void StagedState::MakeStageOptimizer() {
  std::vector<NamedTensor> trained;
  std::map<std::string, at::Tensor> moments;
  for (const Entry& entry : entries_) {
    if (!entry.data.defined()) continue;
    if (entry.is_trained) trained.push_back({entry.name, entry.in_model});
    if (entry.kind == Kind::kMoment) moments[entry.name] = entry.data;
  }
  if (trained.empty()) return;
  optimizer_ = MakeOptimizer(spec_.optimizer, trained);
  for (const NamedTensor& own : optimizer_->state()) own.tensor.set_(moments.at(own.name));
}

Result<void> StagedState::HandOver(Communicator& communicator, const std::vector<bool>& stays) {
  const auto staying = static_cast<int>(std::count(stays.begin(), stays.end(), true));
  const std::vector<LayerRange> ranges =
      parallel::DivideLayers(costs_, std::min(staying, static_cast<int>(costs_.size())));
  std::vector<LayerRange> wanted;
  std::size_t next = 0;
  for (const bool is_staying : stays) {
    const bool takes = is_staying && next < ranges.size();
    wanted.push_back(takes ? ranges[next++] : LayerRange{});
  }
  return Deliver(communicator, version_, wanted);
}

Result<void> StagedState::SyncBuffers(Communicator& communicator) {
  const int me = communicator.rank();
  for (Entry& entry : entries_) {
    if (entry.kind != Kind::kBuffer) continue;
    const int first = entry.holders.front();
    for (const int replica : entry.holders) {
      if (replica == first) continue;
      if (first == me) LOCKSTEP_TRY(communicator.Send(entry.data, replica));
      if (replica == me) LOCKSTEP_TRY(communicator.Receive(entry.data, first));
    }
  }
  return {};
}

}  // namespace lockstep::train
