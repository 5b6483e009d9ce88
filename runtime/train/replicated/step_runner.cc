#include "runtime/train/replicated/step_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "runtime/comm/torch_error.h"
#include "runtime/models/precision.h"
#include "runtime/train/step/gradients.h"
#include "runtime/train/step/micro_batch_source.h"
#include "runtime/train/step/not_finite.h"
#include "runtime/train/step/schedule.h"
#include "runtime/train/step/seed.h"
#include "runtime/train/step/seed_generator.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// What is summed together with the gradients: the totals, then one element per micro-batch of the step. Only
// one rank adds to each of those, so the sum is exact, and adding the elements in order gives the loss the
// same bits in every world that has the same micro-batches.
constexpr int64_t kLosses = StepTotals::kSize;

std::span<double> ValuesOf(at::Tensor& sums) {
  return {sums.data_ptr<double>(), static_cast<std::size_t>(sums.numel())};
}
std::span<const double> ValuesOf(const at::Tensor& sums) {
  return {sums.const_data_ptr<double>(), static_cast<std::size_t>(sums.numel())};
}

at::Tensor EmptySums(const RankShare& share) {
  const int64_t micro_batches =
      std::accumulate(share.micro_batches.begin(), share.micro_batches.end(), int64_t{0});
  return at::zeros({kLosses + micro_batches}, at::kDouble);
}

// The elements of this rank's micro-batches in the sums.
std::span<double> LossesOf(const RankShare& share, int rank, at::Tensor& sums) {
  const auto before = share.micro_batches.begin() + rank;
  const int64_t begin = std::accumulate(share.micro_batches.begin(), before, kLosses);
  return ValuesOf(sums).subspan(static_cast<std::size_t>(begin), share.pieces.size());
}

double LossSum(const at::Tensor& sums) {
  const auto losses = ValuesOf(sums).subspan(StepTotals::kSize);
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

// With async, a prefetched batch is already claimed, and no other rank can take it.
int PrefetchOf(const api::TrainingSpec& spec) {
  return spec.strategy == api::Strategy::kAsync ? 1 : spec.data.prefetch;
}

// The loss of a micro-batch without a valid sample: each gradient is exactly 0, and running statistics do not
// change.
at::Tensor ZeroLoss(const std::vector<at::Tensor>& parameters) {
  const at::AutoGradMode with_gradients(true);
  at::Tensor loss = at::zeros({}, parameters.front().options());
  for (const at::Tensor& parameter : parameters) loss = loss + (parameter * 0).sum().to(loss.device());
  return loss;
}

}  // namespace

StepRunner::StepRunner(const StepContext& context, ReplicatedModel& state)
    : context_(context),
      state_(state),
      micro_batch_policy_(MicroBatchPolicyOf(context.spec)),
      loader_(ReadOf(context, state.device), LoaderWorkers(context), PrefetchOf(context.spec)) {
  for (const NamedTensor& buffer : state_.buffers) buffers_before_.push_back(buffer.tensor.clone());
  if (context_.spec.cuda_graph && context_.device != nullptr)
    graphs_ = std::make_unique<StepGraphs>(*context_.device, state_.trained());
}

void StepRunner::SetShares(int rank, std::vector<double> speeds, int64_t until_step) {
  rank_ = rank;
  speeds_ = std::move(speeds);
  auto share_of = [&plan = context_.samples.plan(), policy = micro_batch_policy_, rank, speeds = speeds_](
                      int64_t step) { return ShareOf(plan.CountOf(step), rank, speeds, policy); };
  loader_.Start(MicroBatchSource(std::move(share_of), state_.step, until_step));
}

Result<StepReport> StepRunner::Run(comm::Communicator& communicator, parallel::Strategy& strategy,
                                   const Requests& requests, const std::stop_token& stop) {
  Result<StepReport> report = Attempt(&communicator, strategy, NextShare(), requests, stop);
  if (report.ok()) context_.ledger.Commit(state_.step - 1);
  return report;
}

Result<StepReport> StepRunner::RunAlone(parallel::Strategy& strategy, const std::stop_token& stop) {
  return Attempt(nullptr, strategy, NextShare(), {}, stop);
}

void StepRunner::Follow(int rank, data::Loader::Source source) {
  rank_ = rank;
  loader_.Start(std::move(source));
}

Result<StepReport> StepRunner::RunClaim(parallel::Strategy& strategy, int64_t step, const Slice& claimed,
                                        const std::stop_token& stop) {
  state_.step = step;
  RankShare share{.pieces = MicroBatches(claimed, micro_batch_policy_.size), .positions = claimed};
  share.micro_batches.assign(static_cast<std::size_t>(rank_) + 1, 0);
  share.micro_batches.back() = static_cast<int64_t>(share.pieces.size());
  return Attempt(nullptr, strategy, share, {}, stop);
}

void StepRunner::LeaveRound() {
  if (graphs_ != nullptr) graphs_->Forget();
}

RankShare StepRunner::NextShare() const {
  return ShareOf(context_.samples.plan().CountOf(state_.step), rank_, speeds_, micro_batch_policy_);
}

Result<StepReport> StepRunner::Attempt(Peers peers, parallel::Strategy& strategy, const RankShare& share,
                                       const Requests& requests, const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  // The forward pass changes running statistics: a repeated step must not count twice, a skipped one not at
  // all.
  for (std::size_t i = 0; i < buffers_before_.size(); ++i) {
    buffers_before_[i].copy_(state_.buffers[i].tensor);
  }
  Result<StepReport> report = RunOrFail(peers, strategy, share, requests, stop);
  if (report.ok() && report->applied) return report;
  if (!report.ok()) LeaveRound();  // also drops a partial recording
  for (std::size_t i = 0; i < buffers_before_.size(); ++i) {
    state_.buffers[i].tensor.copy_(buffers_before_[i]);
  }
  return report;
}

Result<StepReport> StepRunner::RunOrFail(Peers peers, parallel::Strategy& strategy, const RankShare& share,
                                         const Requests& requests, const std::stop_token& stop) {
  const int64_t step = state_.step;
  const double factor = state_.loss_scale.factor();
  const bool has_graphs = graphs_ != nullptr && peers != nullptr;
  const auto way = has_graphs ? graphs_->Begin(*peers, share.pieces, factor) : StepGraphs::Way::kPassByPass;
  const bool by_graphs = way != StepGraphs::Way::kPassByPass;
  if (way != StepGraphs::Way::kReplay) LOCKSTEP_TRY(strategy.BeginStep(share.micro_batches));
  at::Tensor sums = EmptySums(share);
  std::vector<at::Tensor> losses;  // of the micro-batches
  Forwarded forwarded;
  if (by_graphs) {
    LOCKSTEP_TRY(TakeByGraphs(share.pieces, strategy, stop, losses));
  } else {
    LOCKSTEP_TRY(forwarded, ForwardShare(share.pieces, strategy, stop, losses));
  }
  if (context_.ledger.enabled())
    context_.ledger.Contribute(step,
                               context_.samples.plan().Ids(step, share.positions.begin, share.positions.end));
  StepTotals::Of(share.positions.size() - forwarded.corrupt, forwarded.corrupt, requests)
      .CopyTo(ValuesOf(sums));
  std::optional<comm::Communicator::Pending> pending;
  const auto start_sum = [&]() -> Result<void> {
    LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "reading losses", [&] {
      std::transform(losses.begin(), losses.end(), LossesOf(share, rank_, sums).begin(),
                     [](const at::Tensor& loss) { return loss.item<double>(); });
    }));
    if (peers == nullptr) return {};
    LOCKSTEP_TRY(comm::Communicator::Pending started, peers->StartSum(sums));
    pending.emplace(std::move(started));
    return {};
  };
  // On the CPU it is started early, so that it overlaps with the backward pass. On another device the host would
  // wait for the forward pass before it queues the backward pass. The losses of a graph are known only after its
  // sums, and all ranks must sum in the same order, including ranks that replay nothing in a step.
  const bool is_early = graphs_ == nullptr && state_.device.is_cpu();
  if (is_early) LOCKSTEP_TRY(start_sum());
  if (!by_graphs) LOCKSTEP_TRY(Backward(strategy, forwarded.loss, /*last=*/true));
  if (!is_early) LOCKSTEP_TRY(start_sum());
  if (pending.has_value())
    LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kReduce, [&] { return pending->Wait(); }));
  // All sums are known to be good here, so no failure of another rank can undo what follows.
  return context_.phases.Time(TrainPhase::kOptimizer,
                              [&] { return Apply(sums, peers, share, forwarded.corrupt); });
}

Result<StepRunner::Forwarded> StepRunner::ForwardShare(const std::vector<Slice>& pieces,
                                                       parallel::Strategy& strategy,
                                                       const std::stop_token& stop,
                                                       std::vector<at::Tensor>& losses) {
  Forwarded all;
  for (const Slice& slice : pieces) {
    if (all.loss.defined()) LOCKSTEP_TRY(Backward(strategy, all.loss, /*last=*/false));
    LOCKSTEP_TRY(const Forwarded piece, Forward(slice, stop));
    losses.push_back(piece.loss.detach());
    all.loss = piece.loss;
    all.corrupt += piece.corrupt;
  }
  return all;
}

// Gives the same positions the same random numbers on any rank and in any repetition.
void StepRunner::Seed(const Slice& positions, std::span<const at::Device> devices) const {
  const uint64_t seed = MicroBatchSeed(context_.spec.seed, state_.step, positions.begin);
  for (std::size_t i = 0; i < devices.size(); ++i) SeedGenerator(SeedOfDevice(seed, i), devices[i]);
}

at::Tensor StepRunner::LossOf(const Replica& replica, const data::Batch& batch) const {
  const at::AutoGradMode with_gradients(true);
  const models::Autocast precision(context_.spec.precision, replica.devices.front().type());
  return replica.model->LossSum(replica.model->Forward(batch.inputs), batch.targets);
}

// Runs on the part's thread.
at::Tensor StepRunner::SeededLossOf(const Part& part) const {
  Seed(part.positions, part.replica->devices);
  return LossOf(*part.replica, part.batch);
}

Result<data::Batch> StepRunner::NextBatch(const std::stop_token& stop) {
  return CatchTorch(ErrorCode::kInternal, "reading data", [&] { return loader_.Next(stop); });
}

Result<StepRunner::Forwarded> StepRunner::Forward(const Slice& piece, const std::stop_token& stop) {
  const std::vector<Replica>& replicas = state_.replicas();
  Forwarded done;
  std::vector<Part> parts;
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kData, [&]() -> Result<void> {
    LOCKSTEP_TRY(const data::Batch batch, NextBatch(stop));
    done.corrupt = batch.left_out;
    return CatchTorch(ErrorCode::kInternal, "scattering a batch",
                      [&] { parts = Scatter(replicas, piece, batch); });
  }));
  LOCKSTEP_TRY(context_.phases.Time(TrainPhase::kForward, [&] {
    return CatchTorch(ErrorCode::kInternal, "forward pass", [&] {
      CopyBuffers(replicas);
      done.loss = parts.empty() ? ZeroLoss(state_.trained())
                                : SumOfLosses(parts, [this](const Part& part) { return SeededLossOf(part); });
    });
  }));
  return done;
}

Result<void> StepRunner::Backward(parallel::Strategy& strategy, const at::Tensor& loss, bool last) {
  const at::AutoGradMode with_gradients(true);
  Result<void> done = context_.phases.Time(TrainPhase::kBackward, [&]() -> Result<void> {
    const double factor = state_.loss_scale.factor();
    at::Tensor scaled = loss;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "backward pass", [&] {
      if (loss.defined() && factor != 1) scaled = loss * factor;
    }));
    LOCKSTEP_TRY(loss.defined() ? strategy.Backward(scaled, last) : strategy.BackwardOfNothing());
    return last ? strategy.AwaitSum() : Result<void>();
  });
  if (last) {
    context_.phases.Add(TrainPhase::kBackward, -strategy.exposed_seconds());
    context_.phases.Add(TrainPhase::kReduce, strategy.exposed_seconds());
  }
  return done;
}

Result<void> StepRunner::TakeByGraphs(const std::vector<Slice>& pieces, parallel::Strategy& strategy,
                                      const std::stop_token& stop, std::vector<at::Tensor>& losses) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    LOCKSTEP_TRY(const data::Batch batch,
                 context_.phases.Time(TrainPhase::kData, [&] { return NextBatch(stop); }));
    const bool last = i + 1 == pieces.size();
    LOCKSTEP_TRY(at::Tensor loss, context_.phases.Time(TrainPhase::kGraph, [&] {
      Seed(pieces[i], state_.replicas().front().devices);
      return graphs_->Take(batch,
                           [&](const data::Batch& there) { return PassToRecord(strategy, there, last); });
    }));
    losses.push_back(std::move(loss));
  }
  return context_.phases.Time(TrainPhase::kGraph, [this] { return graphs_->Await(); });
}

Result<at::Tensor> StepRunner::PassToRecord(parallel::Strategy& strategy, const data::Batch& batch,
                                            bool last) {
  const at::AutoGradMode with_gradients(true);
  at::Tensor loss;
  at::Tensor scaled;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "forward pass", [&] {
    loss = LossOf(state_.replicas().front(), batch);
    scaled = loss * graphs_->factor();
  }));
  LOCKSTEP_TRY(strategy.Backward(scaled, last));
  return loss;
}

Result<StepReport> StepRunner::Apply(const at::Tensor& sums, Peers peers, const RankShare& share,
                                     int64_t corrupt) {
  ReplicatedModel& state = state_;
  const auto totals = StepTotals::From(ValuesOf(sums));
  const auto count = static_cast<double>(totals.count);
  StepReport report{
      .loss = LossSum(sums) / count,
      .learning_rate = LearningRate(context_.spec.schedule, api::BaseLearningRate(context_.spec), state.step,
                                    context_.total_steps),
      .all = totals,
      .local_count = share.positions.size() - corrupt,
      .local_corrupt = corrupt};
  if (totals.count == 0 && peers != nullptr)
    return AllCorrupt("step " + std::to_string(state.step), totals.corrupt);
  if (totals.count == 0) {  // this rank alone, without a valid sample in this step
    report.loss = 0;
    ++state.step;
    return report;
  }
  // The numbers are the same on every rank, so all ranks decide alike.
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    report.gradient_norm =
        AverageAndClip(state.trained(), count * state.loss_scale.factor(), context_.spec.optimizer.clip_norm);
    report.applied = std::isfinite(report.gradient_norm) && std::isfinite(report.loss);
  }));
  if (report.applied) LOCKSTEP_TRY(state.Update(peers, report.learning_rate));
  LOCKSTEP_TRY(report.not_finite, not_finite_.After(state.step, report.applied, report.loss, state.loss_scale,
                                                    [&] { return WhereNotFinite(peers, share.pieces); }));
  report.skipped = report.applied ? 0 : 1;
  if (!report.applied) state.SkipUpdate();
  ++state.step;
  return report;
}

Result<std::string> StepRunner::WhereNotFinite(Peers peers, const std::vector<Slice>& pieces) {
  const ReplicatedModel& state = state_;
  NotFinite mine;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "locating non-finite values", [&] {
    for (const Slice& piece : pieces) {
      const data::Batch batch = context_.samples.Get({state.step, piece.begin, piece.end});
      for (const Part& part : Scatter(state.replicas(), piece, batch))
        LookForNotFinite(SeededLossOf(part), part.replica->trained, mine);
    }
  }));
  std::vector<NotFinite> of_ranks(static_cast<std::size_t>(rank_));
  of_ranks.push_back(mine);
  if (peers != nullptr) {
    const std::vector<int64_t> findings = {mine.loss ? 1 : 0, mine.parameter};
    LOCKSTEP_TRY(const auto rows, peers->AllGather(findings));
    of_ranks.clear();
    for (const auto& row : rows) of_ranks.push_back({row.at(0) != 0, row.at(1)});
  }
  std::vector<std::string> names;
  for (const NamedTensor& parameter : state.parameters) {
    if (parameter.tensor.requires_grad()) names.push_back(parameter.name);
  }
  return Describe(of_ranks, names);
}

}  // namespace lockstep::train
