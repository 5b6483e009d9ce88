#include "runtime/telemetry/training_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/protocol/metric_names.h"
#include "runtime/common/telemetry/exposition.h"
#include "runtime/telemetry/gpu_peak.h"

namespace lockstep::telemetry {
namespace {

namespace metric = protocol::metric;
using Labels = std::map<std::string, std::string>;

constexpr const char* kSavesHelp = "Checkpoints stored.";
constexpr const char* kCheckpointStepHelp = "Step of the newest checkpoint.";
constexpr const char* kCheckpointTimestampHelp = "When the newest checkpoint was stored, Unix time.";
constexpr const char* kFailuresHelp = "Checkpoints that could not be stored.";

// A local rank and the labels of its series.
struct Rank {
  int local_rank = 0;
  bool has_own_series = true;  // false: only the sums over the ranks of the pod, without the label local_rank
  Labels labels;

  // Ranks commit the same steps: where they share series, the first one counts those of all.
  [[nodiscard]] bool CountsSteps() const { return has_own_series || local_rank == 0; }
  [[nodiscard]] Rank With(const std::string& label, const std::string& value) const {
    Rank rank = *this;
    rank.labels[label] = value;
    return rank;
  }
};

}  // namespace

struct TrainingMetrics::State {
  prometheus::Registry registry;
  Labels job_labels;
  int slot = 0;
  int ranks_here = 1;
  int rank_metrics_limit = 0;
  std::string precision;
  // prometheus-cpp's families lock themselves; this also guards the order of updates.
  Mutex mutex;
  int world LOCKSTEP_GUARDED_BY(mutex) = 0;  // 0: no round yet
  double flops_per_sample LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::optional<double> peak_flops LOCKSTEP_GUARDED_BY(mutex);  // of this pod's GPUs
  // Cumulative values as the rank processes last reported them, by counter, local rank and labels.
  std::map<std::tuple<std::string, int, Labels>, double> reported LOCKSTEP_GUARDED_BY(mutex);
  std::map<int, protocol::StepTimes> step_times LOCKSTEP_GUARDED_BY(mutex);  // by local rank
  std::map<int, int> global_ranks LOCKSTEP_GUARDED_BY(mutex);  // of the newest round, by local rank

  // By replica and local rank, which stay the same over rounds. Which ranks have series of their own does not
  // depend on the size of the job, so that no series begins or ends when it changes.
  [[nodiscard]] Rank RankOf(int local_rank) const {
    Rank rank{.local_rank = local_rank, .labels = {{"replica", std::to_string(slot)}}};
    rank.has_own_series = int64_t{slot} * ranks_here + local_rank < rank_metrics_limit;
    return rank.has_own_series ? rank.With("local_rank", std::to_string(local_rank)) : rank;
  }

  void Set(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Labels(job_labels)
        .Register(registry)
        .Add(labels)
        .Set(value);
  }
  // Without a value the series is removed, so that no outdated value remains.
  void SetOrRemove(const char* name, const char* help, std::optional<double> value, const Labels& labels) {
    auto& family = prometheus::BuildGauge().Name(name).Help(help).Labels(job_labels).Register(registry);
    prometheus::Gauge& gauge = family.Add(labels);
    value.has_value() ? gauge.Set(*value) : family.Remove(&gauge);
  }
  void Count(const char* name, const char* help, double increment, const Labels& labels = {}) {
    prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Labels(job_labels)
        .Register(registry)
        .Add(labels)
        .Increment(increment);
  }
  // A rank reports totals since its process started; they restart from zero with the process.
  void CountTo(const char* name, const char* help, double total, const Rank& rank) LOCKSTEP_REQUIRES(mutex) {
    double& last = reported[{name, rank.local_rank, rank.labels}];
    Count(name, help, total >= last ? total - last : total, rank.labels);
    last = total;
  }

  // `total` includes counts from before this pod started; only the increase is counted.
  void CountFromNow(const char* name, const char* help, double total, const Rank& rank)
      LOCKSTEP_REQUIRES(mutex) {
    reported.try_emplace({name, rank.local_rank, rank.labels}, total);
    CountTo(name, help, total, rank);
  }

  // All ranks wait for each other in a step, so the times of rank 0 are those of the job.
  void CountStepTimes(const protocol::StepTimes& times, const Rank& rank) LOCKSTEP_REQUIRES(mutex) {
    protocol::StepTimes& last = step_times[rank.local_rank];
    const bool continues = times.seconds >= last.seconds;
    std::vector<double> increments;
    for (std::size_t i = 0; i < last.counts.size() && i < times.counts.size(); ++i)
      increments.push_back(static_cast<double>(times.counts[i] - (continues ? last.counts[i] : 0)));
    const double seconds = times.seconds - (continues ? last.seconds : 0);
    last = times;
    const auto global_rank = global_ranks.find(rank.local_rank);
    if (global_rank == global_ranks.end() || global_rank->second != 0) return;
    prometheus::BuildHistogram()
        .Name(metric::kStepSeconds)
        .Help("Seconds from one committed step to the next, on rank 0.")
        .Labels(job_labels)
        .Register(registry)
        .Add({}, prometheus::Histogram::BucketBoundaries(protocol::kStepTimeBounds.begin(),
                                                         protocol::kStepTimeBounds.end()))
        .ObserveMultiple(increments, seconds);
  }

  // A series whose labels change would break rates, so only this one has the global rank.
  void SetGlobalRank(const Rank& rank, int global_rank) LOCKSTEP_REQUIRES(mutex) {
    const auto set = [&](int of, std::optional<double> value) {
      SetOrRemove(metric::kRankInfo, "1 for each rank, with its global rank in the newest round.", value,
                  rank.With("rank", std::to_string(of)).labels);
    };
    const auto before = global_ranks.find(rank.local_rank);
    if (before != global_ranks.end() && before->second != global_rank && rank.has_own_series)
      set(before->second, {});
    global_ranks[rank.local_rank] = global_rank;
    if (rank.has_own_series) set(global_rank, 1);
  }

  // The sum over the GPUs; absent if the peak of one is unknown.
  void SetPeak(const std::vector<GpuReading>& gpus) LOCKSTEP_REQUIRES(mutex) {
    peak_flops = gpus.empty() ? std::nullopt : std::optional(0.0);
    for (const GpuReading& gpu : gpus) {
      const std::optional<double> peak = PeakFlops(gpu.name, precision);
      peak_flops = peak && peak_flops ? std::optional(*peak_flops + *peak) : std::nullopt;
    }
  }
  void SetUtilization(double samples_per_second) LOCKSTEP_REQUIRES(mutex) {
    std::optional<double> utilization;
    // Assumes that the other pods have the same GPUs as this one.
    if (flops_per_sample > 0 && peak_flops.has_value() && world > 0)
      utilization = samples_per_second * flops_per_sample / (*peak_flops / ranks_here * world);
    SetOrRemove(
        metric::kMfu,
        "Model FLOPs utilization: the operations that the model needs at the speed of the job, divided "
        "by what its GPUs could do.",
        utilization, {});
  }

  void SetGpu(const GpuReading& m, const Labels& labels) {
    SetOrRemove(metric::kGpuUtilization,
                "Share of the last moments in which a kernel ran on the GPU, 0 to 1.", m.utilization, labels);
    SetOrRemove(metric::kGpuMemoryUsed, "Memory of the GPU that is in use, including the driver's own.",
                m.memory_used_bytes, labels);
    SetOrRemove(metric::kGpuMemoryTotal, "Memory of the GPU.", m.memory_total_bytes, labels);
    SetOrRemove(metric::kGpuPower, "Power that the GPU draws.", m.power_watts, labels);
    SetOrRemove(metric::kGpuTemperature, "Temperature of the GPU.", m.temperature_celsius, labels);
  }
  void Observe(const Rank& of_rank, const GpuReading& m) LOCKSTEP_REQUIRES(mutex) {
    const Rank rank = of_rank.With("gpu", std::to_string(m.gpu)).With("uuid", m.uuid);
    if (rank.has_own_series) SetGpu(m, rank.labels);
    if (m.ecc_errors.has_value()) {
      CountFromNow(metric::kGpuEccErrorsTotal,
                   "Errors in the GPU's memory that could not be corrected, since the pod started.",
                   *m.ecc_errors, rank);
    }
    for (const uint64_t xid : m.xids) {
      Count(metric::kGpuXidErrorsTotal,
            "Critical errors that the GPU's driver reported, since the pod started.", 1,
            rank.With("xid", std::to_string(xid)).labels);
    }
  }
  void CountSteps(const Rank& rank, const protocol::Progress& m) LOCKSTEP_REQUIRES(mutex) {
    CountTo(metric::kStepsTotal, "Optimizer steps committed by this rank.",
            static_cast<double>(m.steps_total), rank);
    CountTo(metric::kRepeatedStepsTotal, "Steps that were aborted and repeated.",
            static_cast<double>(m.repeated_steps_total), rank);
    CountTo(metric::kSkippedStepsTotal, "Steps that changed nothing: loss or gradient were not finite.",
            static_cast<double>(m.skipped_steps_total), rank);
  }
  void Observe(const Rank& rank, const protocol::Progress& m) LOCKSTEP_REQUIRES(mutex) {
    if (rank.CountsSteps()) CountSteps(rank, m);
    CountTo(metric::kSamplesTotal, "Samples consumed by this rank.", static_cast<double>(m.samples_total),
            rank);
    CountTo(metric::kCorruptRecordsTotal,
            "Times that a record of this rank's samples was skipped, in steps and evaluations, as corrupt.",
            static_cast<double>(m.corrupt_records_total), rank);
    if (rank.has_own_series) {
      for (const auto& [phase, seconds] : m.phase_seconds)
        CountTo(metric::kPhaseSecondsTotal, "Seconds this rank spent in each phase.", seconds,
                rank.With("phase", phase));
      Set(metric::kStep, "Completed optimizer steps of the job, as this rank holds them.",
          static_cast<double>(m.step), rank.labels);
    }
    if (m.HasOnlySteps()) return;
    Set(metric::kPlannedSteps, "Optimizer steps that the job will take.", static_cast<double>(m.total_steps));
    Set(metric::kEpoch, "Passes over the data, fraction included.", m.epoch);
    if (m.HasLoss()) Set(metric::kLoss, "Mean training loss over the global batch of the last step.", m.loss);
    Set(metric::kLearningRate, "Learning rate of the last step.", m.learning_rate);
    Set(metric::kGradientNorm, "Global gradient norm of the last step, before clipping.", m.gradient_norm);
    SetUtilization(m.samples_per_second);
  }
  void Observe(const Rank& rank, const protocol::Usage& m) LOCKSTEP_REQUIRES(mutex) {
    CountStepTimes(m.step_times, rank);
    if (m.tokens_total > 0) {
      CountTo(metric::kTokensTotal, "Tokens consumed by this rank.", static_cast<double>(m.tokens_total),
              rank);
    }
    if (!rank.has_own_series) return;
    CountTo(metric::kCommunicationBytesTotal,
            "Bytes of the tensors that this rank passed to collectives and messages.",
            static_cast<double>(m.communication_bytes_total), rank);
  }
  void Observe(const Rank& rank, const protocol::Synced& m) {
    Set(metric::kRound, "Newest round that this pod entered.", static_cast<double>(m.round));
    Count(metric::kRoundsTotal, "Rounds entered, by the source of the state.", 1,
          rank.With("state_from", m.source).labels);
    if (!rank.has_own_series) return;
    Set(metric::kSyncSeconds, "Seconds from the assignment to equal state on all ranks, in the newest round.",
        m.seconds, rank.labels);
  }
  void SetEvaluation(std::optional<double> loss, std::optional<double> accuracy) {
    SetOrRemove(metric::kEvaluationLoss, "Mean loss of the newest evaluation.", loss, {});
    SetOrRemove(metric::kEvaluationAccuracy, "Accuracy of the newest evaluation, 0 to 1.", accuracy, {});
  }
  void Observe(const Rank&, const protocol::Evaluated& m) { SetEvaluation(m.loss, m.accuracy); }
  // A program stored it by itself: when and how long is not known, and another pod may have reported it before.
  void SetFound(const protocol::Saved& m) {
    SetOrRemove(metric::kCheckpointStep, kCheckpointStepHelp,
                m.step < 0 ? std::nullopt : std::optional(static_cast<double>(m.step)), {});
    Set(metric::kCheckpointTimestamp, kCheckpointTimestampHelp, m.completed_at);
  }
  void Observe(const Rank&, const protocol::Saved& m) {
    if (m.completed_at > 0) return SetFound(m);
    Count(metric::kCheckpointsTotal, kSavesHelp, 1);
    Count(metric::kCheckpointBytesTotal, "Bytes of the stored checkpoints.", static_cast<double>(m.bytes));
    Count(metric::kCheckpointStallSecondsTotal, "Seconds training waited for checkpoints.", m.stall_seconds);
    Set(metric::kCheckpointSeconds, "Seconds from snapshot to manifest, of the newest checkpoint.",
        m.seconds);
    Set(metric::kCheckpointStep, kCheckpointStepHelp, static_cast<double>(m.step));
    Set(metric::kCheckpointTimestamp, kCheckpointTimestampHelp,
        Seconds(SystemClock().Now().time_since_epoch()).count());
  }
  void Observe(const Rank&, const protocol::SaveFailed&) {
    Count(metric::kCheckpointFailuresTotal, kFailuresHelp, 1);
  }
  void Observe(const Rank& rank, const protocol::Ready& m) LOCKSTEP_REQUIRES(mutex) {
    flops_per_sample = m.flops_per_sample;
    if (flops_per_sample > 0)
      Set(metric::kModelFlopsPerSample,
          "Floating point operations that the model needs for a sample, forward and backward.",
          flops_per_sample);
    // A process without state has just started.
    if (m.step < 0) Count(metric::kRankStartsTotal, "Rank processes that became ready.", 1, rank.labels);
  }
  // These messages have no metrics.
  void Observe(const Rank&, const protocol::PhaseChanged&) {}
  void Observe(const Rank&, const protocol::Broken&) {}
  void Observe(const Rank&, const protocol::Finished&) {}
  void Observe(const Rank&, const protocol::Failed&) {}
  void Observe(const Rank&, const protocol::Pong&) {}
  void Observe(const Rank&, const protocol::ProfileAgreed&) {}
  void Observe(const Rank&, const protocol::StoreUnavailable&) {}
  void Observe(const Rank&, const protocol::CheckpointDamaged&) {}
};

TrainingMetrics::TrainingMetrics(const protocol::WorkerConfig& config, int slot)
    : state_(std::make_unique<State>()) {
  state_->job_labels = {{"namespace", config.job.name_space}, {"job_name", config.job.name}};
  state_->slot = slot;
  state_->ranks_here = config.nproc;
  state_->rank_metrics_limit = config.rank_metrics_limit;
  state_->precision = config.training.value("precision", "");
  if (state_->precision == "fp32" && config.training.value("tf32", false)) state_->precision = "tf32";
  AddBuildInfo(state_->registry, "lockstep");
  // Visible at zero before the first event, so that rate() works.
  state_->Count(metric::kCheckpointsTotal, kSavesHelp, 0);
  state_->Count(metric::kCheckpointFailuresTotal, kFailuresHelp, 0);
}

TrainingMetrics::~TrainingMetrics() = default;

void TrainingMetrics::Observe(int local_rank, const protocol::FromRank& message) {
  const MutexLock lock(state_->mutex);
  std::visit([&](const auto& m)
                 LOCKSTEP_REQUIRES(state_->mutex) { state_->Observe(state_->RankOf(local_rank), m); },
             message);
}

void TrainingMetrics::SetPlace(int local_rank, int rank, int world_size) {
  const MutexLock lock(state_->mutex);
  state_->world = world_size;
  state_->SetGlobalRank(state_->RankOf(local_rank), rank);
  if (local_rank == 0 && rank != 0) state_->SetEvaluation({}, {});
}

void TrainingMetrics::SetMemory(int local_rank, double resident_bytes, double checkpoint_bytes) {
  const MutexLock lock(state_->mutex);
  const Rank rank = state_->RankOf(local_rank);
  if (!rank.has_own_series) return;
  state_->Set(metric::kRankMemory, "Host memory that the rank's largest process holds.", resident_bytes,
              rank.labels);
  std::optional<double> of_checkpoints;
  if (checkpoint_bytes > 0) of_checkpoints = checkpoint_bytes;
  state_->SetOrRemove(metric::kRankCheckpointMemory, "Host memory that the checkpoints of the rank take.",
                      of_checkpoints, rank.labels);
}

void TrainingMetrics::CountHang(int local_rank) {
  const MutexLock lock(state_->mutex);
  state_->Count(metric::kHangsTotal, "Hangs of the rank that were detected.", 1,
                state_->RankOf(local_rank).labels);
}

void TrainingMetrics::Observe(const std::vector<GpuReading>& gpus) {
  const MutexLock lock(state_->mutex);
  state_->SetPeak(gpus);
  for (const GpuReading& gpu : gpus) state_->Observe(state_->RankOf(gpu.local_rank), gpu);
}

http::Response TrainingMetrics::Scrape() const { return MetricsResponse(state_->registry); }

}  // namespace lockstep::telemetry
