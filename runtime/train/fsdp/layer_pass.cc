#include "runtime/train/fsdp/layer_pass.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <stdexcept>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/clock.h"

namespace lockstep::train {

using comm::CatchTorch;
using comm::Communicator;

namespace {

// In float32, so gradients of 16 bits lose nothing on their way.
at::Tensor AddUp(const at::Tensor& received, int ranks) {
  return received.view({ranks, -1}).sum(0, /*keepdim=*/false, at::kFloat);
}

}  // namespace

LayerPass::~LayerPass() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) Free(unit);
}

Result<at::Tensor> LayerPass::Forward(const at::Tensor& inputs, bool with_gradients) {
  const std::size_t count = layers_.layers().size();
  LOCKSTEP_TRY(StartGather(layers_.shared_units()));
  LOCKSTEP_TRY(StartGather(layers_.UnitsOf(0)));
  LOCKSTEP_TRY(FinishGather(layers_.shared_units()));
  at::Tensor x = inputs;
  for (std::size_t layer = 0; layer < count; ++layer) {
    const bool is_last = layer + 1 == count;
    LOCKSTEP_TRY(FinishGather(layers_.UnitsOf(layer)));
    if (!is_last) LOCKSTEP_TRY(StartGather(layers_.UnitsOf(layer + 1)));
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "forward pass", [&] {
      if (x.defined()) x = layers_.layers()[layer].forward(x);
      // It would keep copies of the layer's parameters.
      at::autocast::clear_cache();
      if (with_gradients && x.defined() && x.requires_grad())
        x.register_hook([this, layer](const at::Tensor&) { OnGradientOf(layer); });
    }));
    if (!with_gradients || !is_last) Free(layers_.UnitsOf(layer));  // the way back begins with the last layer
  }
  open_ = count;
  return x;
}

Result<void> LayerPass::Backward(const at::Tensor& loss) {
  if (loss.defined() && loss.requires_grad()) {
    Result<void> done = CatchTorch(ErrorCode::kInternal, "backward pass", [&] { loss.backward(); });
    if (failed_.has_value()) return *failed_;
    if (!done.ok()) return done;
  }
  LOCKSTEP_TRY(OpenDownTo(0));
  for (const UnitNumbers& units : {layers_.UnitsOf(0), layers_.shared_units()}) {
    LOCKSTEP_TRY(StartSum(units));
    Free(units);
  }
  return FinishSum();
}

void LayerPass::OnGradientOf(std::size_t layer) {
  const Result<void> opened = OpenDownTo(layer);
  if (opened.ok()) return;
  failed_ = opened.error();
  throw std::runtime_error(opened.error().message);
}

Result<void> LayerPass::OpenDownTo(std::size_t layer) {
  while (open_ > layer) LOCKSTEP_TRY(Open(--open_));
  return {};
}

// When the gradient of a layer's output is there, the gradients of all later layers are complete: autograd
// computes what was made last first.
Result<void> LayerPass::Open(std::size_t layer) {
  LOCKSTEP_TRY(StartGather(layers_.UnitsOf(layer)));
  LOCKSTEP_TRY(FinishGather(layers_.UnitsOf(layer)));
  if (layer > 0) LOCKSTEP_TRY(StartGather(layers_.UnitsOf(layer - 1)));
  if (layer + 1 == layers_.layers().size()) return {};
  LOCKSTEP_TRY(StartSum(layers_.UnitsOf(layer + 1)));
  Free(layers_.UnitsOf(layer + 1));
  return {};
}

Result<void> LayerPass::StartGather(const UnitNumbers& units) {
  for (const std::size_t unit : units) {
    Gathering& gathering = units_[unit];
    if (gathering.is_shown || gathering.pending.has_value()) continue;
    at::Tensor mine;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "gathering a layer", [&] {
      const at::NoGradGuard no_grad;
      mine = layers_.PaddedPiece(unit, communicator_.world());
      gathering.all = at::empty({mine.numel() * communicator_.world()}, mine.options());
    }));
    LOCKSTEP_TRY(Communicator::Pending started, communicator_.StartAllGather(gathering.all, mine));
    gathering.pending.emplace(std::move(started));
  }
  return {};
}

Result<void> LayerPass::FinishGather(const UnitNumbers& units) {
  for (const std::size_t unit : units) {
    Gathering& gathering = units_[unit];
    if (gathering.is_shown) continue;
    LOCKSTEP_TRY(Wait(*gathering.pending));
    gathering.pending.reset();
    layers_.Show(unit, gathering.all);
    gathering.all.reset();
    gathering.is_shown = true;
  }
  return {};
}

void LayerPass::Free(const UnitNumbers& units) {
  for (const std::size_t unit : units) Free(unit);
}

void LayerPass::Free(std::size_t unit) {
  Gathering& gathering = units_[unit];
  if (gathering.is_shown) layers_.Hide(unit);
  gathering.is_shown = false;
  gathering.pending.reset();
  gathering.all.reset();
}

Result<void> LayerPass::StartSum(const UnitNumbers& units) {
  if (units.empty()) return {};
  LOCKSTEP_TRY(FinishSum());
  for (const std::size_t unit : units) {
    at::Tensor sent;
    at::Tensor received;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing gradients", [&] {
      sent = layers_.TakeGradients(unit, communicator_.world());
      received = at::empty_like(sent);
    }));
    LOCKSTEP_TRY(Communicator::Pending started, communicator_.StartAllToAll(received, sent));
    summing_.push_back({unit, std::move(received), std::move(started)});
  }
  return {};
}

Result<void> LayerPass::FinishSum() {
  for (Summing& summing : summing_) {
    LOCKSTEP_TRY(Wait(summing.pending));
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "adding gradients", [&] {
      const at::NoGradGuard no_grad;
      layers_.AddGradient(summing.unit, AddUp(summing.received, communicator_.world()));
    }));
  }
  summing_.clear();
  return {};
}

Result<void> LayerPass::Wait(Communicator::Pending& pending) {
  const SteadyTime start = std::chrono::steady_clock::now();
  Result<void> done = pending.Wait();
  waited_seconds_ += Seconds(std::chrono::steady_clock::now() - start).count();
  return done;
}

}  // namespace lockstep::train
