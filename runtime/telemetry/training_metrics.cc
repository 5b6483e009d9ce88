#include "runtime/telemetry/training_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <optional>

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
constexpr const char* kFailuresHelp = "Checkpoints that could not be stored.";

}  // namespace

struct TrainingMetrics::State {
  prometheus::Registry registry;
  Labels job_labels;
  int slot = 0;
  int ranks_here = 1;
  std::string precision;
  // prometheus-cpp's families lock themselves; this also guards the order of updates.
  Mutex mutex;
  int world LOCKSTEP_GUARDED_BY(mutex) = 0;  // 0: no round yet
  double flops_per_sample LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::optional<double> peak_flops LOCKSTEP_GUARDED_BY(mutex);  // of this pod's GPUs
  // Cumulative values as the current rank processes last reported them, by counter and labels.
  std::map<std::pair<std::string, Labels>, double> reported LOCKSTEP_GUARDED_BY(mutex);
  std::map<Labels, protocol::StepTimes> step_times LOCKSTEP_GUARDED_BY(mutex);

  void Set(const char* name, const char* help, double value, const Labels& labels = {}) {
    prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Labels(job_labels)
        .Register(registry)
        .Add(labels)
        .Set(value);
  }
  // Absent: no series, rather than one that stays at what was true once.
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
  // A rank reports totals since its process started; a respawned one starts from zero again.
  void CountTo(const char* name, const char* help, double total, const Labels& labels)
      LOCKSTEP_REQUIRES(mutex) {
    double& last = reported[{name, labels}];
    Count(name, help, total >= last ? total - last : total, labels);
    last = total;
  }

  // As CountTo, of each place.
  void CountTo(const char* name, const char* help, const protocol::StepTimes& times, const Labels& labels)
      LOCKSTEP_REQUIRES(mutex) {
    protocol::StepTimes& last = step_times[labels];
    const bool goes_on = times.seconds >= last.seconds;
    std::vector<double> increments;
    for (std::size_t i = 0; i < last.counts.size() && i < times.counts.size(); ++i)
      increments.push_back(static_cast<double>(times.counts[i] - (goes_on ? last.counts[i] : 0)));
    prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(job_labels)
        .Register(registry)
        .Add(labels, prometheus::Histogram::BucketBoundaries(protocol::kStepTimeBounds.begin(),
                                                             protocol::kStepTimeBounds.end()))
        .ObserveMultiple(increments, times.seconds - (goes_on ? last.seconds : 0));
    last = times;
  }

  // `total` began before this pod did.
  void CountFromNow(const char* name, const char* help, double total, const Labels& labels)
      LOCKSTEP_REQUIRES(mutex) {
    reported.try_emplace({name, labels}, total);
    CountTo(name, help, total, labels);
  }

  // The sum; absent where that of one is not known.
  void SetPeak(const std::vector<GpuReading>& gpus) LOCKSTEP_REQUIRES(mutex) {
    peak_flops = gpus.empty() ? std::nullopt : std::optional(0.0);
    for (const GpuReading& gpu : gpus) {
      const std::optional<double> peak = PeakFlops(gpu.name, precision);
      peak_flops = peak && peak_flops ? std::optional(*peak_flops + *peak) : std::nullopt;
    }
  }
  void SetModelFlops(double samples_per_second) LOCKSTEP_REQUIRES(mutex) {
    if (flops_per_sample == 0) return;
    const double flops = samples_per_second * flops_per_sample;
    Set(metric::kModelFlops,
        "Floating point operations per second that the model takes at the speed of the whole world, forward "
        "and backward.",
        flops);
    std::optional<double> utilization;
    // The other pods' GPUs are taken to be like those of this one.
    if (peak_flops.has_value() && world > 0) utilization = flops / (*peak_flops / ranks_here * world);
    SetOrRemove(metric::kMfu,
                "Model FLOPs utilization: those operations, of all that the world's GPUs could do.",
                utilization, {});
  }

  void Observe(const Labels& rank, const GpuReading& m) LOCKSTEP_REQUIRES(mutex) {
    Labels labels = rank;
    labels["gpu"] = std::to_string(m.gpu);
    labels["uuid"] = m.uuid;
    SetOrRemove(metric::kGpuUtilization,
                "Share of the last moments in which a kernel ran on the GPU, 0 to 1.", m.utilization, labels);
    SetOrRemove(metric::kGpuMemoryUsed, "Memory of the GPU that is in use, the driver's own part included.",
                m.memory_used_bytes, labels);
    SetOrRemove(metric::kGpuMemoryTotal, "Memory of the GPU.", m.memory_total_bytes, labels);
    SetOrRemove(metric::kGpuPower, "Power that the GPU draws.", m.power_watts, labels);
    SetOrRemove(metric::kGpuTemperature, "Temperature of the GPU.", m.temperature_celsius, labels);
    if (m.ecc_errors.has_value()) {
      CountFromNow(metric::kGpuEccErrorsTotal,
                   "Errors in the GPU's memory that could not be corrected, since the pod began.",
                   *m.ecc_errors, labels);
    }
    for (const uint64_t xid : m.xids) {
      Labels error = labels;
      error["xid"] = std::to_string(xid);
      Count(metric::kGpuXidErrorsTotal,
            "Critical errors that the GPU's driver reported, since the pod began.", 1, error);
    }
  }
  void Observe(const Labels& rank, const protocol::Progress& m) LOCKSTEP_REQUIRES(mutex) {
    CountTo(metric::kStepsTotal, "Optimizer steps committed by this rank.",
            static_cast<double>(m.steps_total), rank);
    CountTo(metric::kSamplesTotal, "Samples consumed by this rank.", static_cast<double>(m.samples_total),
            rank);
    CountTo(metric::kRepeatedStepsTotal, "Steps that were aborted and done again.",
            static_cast<double>(m.repeated_steps_total), rank);
    CountTo(metric::kSkippedStepsTotal, "Steps that changed nothing: loss or gradient were not finite.",
            static_cast<double>(m.skipped_steps_total), rank);
    CountTo(metric::kCorruptRecordsTotal,
            "Times that a record of this rank's samples was skipped, in steps and evaluations, as corrupt.",
            static_cast<double>(m.corrupt_records_total), rank);
    for (const auto& [phase, seconds] : m.phase_seconds) {
      Labels labels = rank;
      labels["phase"] = phase;
      CountTo(metric::kPhaseSecondsTotal, "Seconds this rank spent in each phase.", seconds, labels);
    }
    Set(metric::kStep, "Completed optimizer steps of the job, as this rank holds them.",
        static_cast<double>(m.step), rank);
    Set(metric::kTotalSteps, "Optimizer steps the job will take.", static_cast<double>(m.total_steps));
    Set(metric::kEpoch, "Passes over the data, fraction included.", m.epoch);
    Set(metric::kLoss, "Mean training loss over the global batch of the last step.", m.loss);
    Set(metric::kLearningRate, "Learning rate of the last step.", m.learning_rate);
    Set(metric::kGradientNorm, "Global gradient norm of the last step, before clipping.", m.gradient_norm);
    Set(metric::kSamplesPerSecond, "Samples per second of the whole world, smoothed.", m.samples_per_second);
    SetModelFlops(m.samples_per_second);
  }
  void Observe(const Labels& rank, const protocol::Usage& m) LOCKSTEP_REQUIRES(mutex) {
    CountTo(metric::kStepSeconds, "Seconds from one committed step to the next.", m.step_times, rank);
    if (m.tokens_total > 0) {
      CountTo(metric::kTokensTotal, "Tokens consumed by this rank.", static_cast<double>(m.tokens_total),
              rank);
    }
    CountTo(metric::kCommunicationBytesTotal,
            "Bytes of the tensors that this rank gave to collectives and messages.",
            static_cast<double>(m.communication_bytes_total), rank);
  }
  void Observe(const Labels& rank, const protocol::Synced& m) {
    Set(metric::kRound, "Newest round this pod entered.", static_cast<double>(m.round));
    Set(metric::kSyncSeconds, "Seconds from assignment to equal state on all ranks, newest round.", m.seconds,
        rank);
    Labels labels = rank;
    labels["state_from"] = m.source;
    Count(metric::kRoundsTotal, "Rounds entered, by where the state came from.", 1, labels);
  }
  void SetEvaluation(std::optional<double> loss, std::optional<double> accuracy) {
    SetOrRemove(metric::kEvaluationLoss, "Mean loss of the newest evaluation.", loss, {});
    SetOrRemove(metric::kEvaluationAccuracy, "Accuracy of the newest evaluation, 0 to 1.", accuracy, {});
  }
  void Observe(const Labels&, const protocol::Evaluated& m) { SetEvaluation(m.loss, m.accuracy); }
  void Observe(const Labels&, const protocol::Saved& m) {
    Count(metric::kCheckpointsTotal, kSavesHelp, 1);
    Count(metric::kCheckpointBytesTotal, "Bytes of the stored checkpoints.", static_cast<double>(m.bytes));
    Count(metric::kCheckpointStallSecondsTotal, "Seconds training waited for checkpoints.", m.stall_seconds);
    Set(metric::kCheckpointSeconds, "Seconds from snapshot to manifest, newest checkpoint.", m.seconds);
    Set(metric::kCheckpointStep, "Step of the newest checkpoint.", static_cast<double>(m.step));
    Set(metric::kCheckpointTimestamp, "When the newest checkpoint was stored, Unix time.",
        Seconds(SystemClock().Now().time_since_epoch()).count());
  }
  void Observe(const Labels&, const protocol::SaveFailed&) {
    Count(metric::kCheckpointFailuresTotal, kFailuresHelp, 1);
  }
  void Observe(const Labels& rank, const protocol::Ready& m) LOCKSTEP_REQUIRES(mutex) {
    flops_per_sample = m.flops_per_sample;
    // A process that holds nothing has just started.
    if (m.step < 0) Count(metric::kRankStartsTotal, "Rank processes that became ready.", 1, rank);
  }
  // Nothing to export.
  void Observe(const Labels&, const protocol::PhaseChanged&) {}
  void Observe(const Labels&, const protocol::Broken&) {}
  void Observe(const Labels&, const protocol::Finished&) {}
  void Observe(const Labels&, const protocol::Failed&) {}
  void Observe(const Labels&, const protocol::Pong&) {}
  void Observe(const Labels&, const protocol::ProfileAgreed&) {}
  void Observe(const Labels&, const protocol::StoreUnavailable&) {}
  void Observe(const Labels&, const protocol::CheckpointDamaged&) {}
};

TrainingMetrics::TrainingMetrics(const protocol::WorkerConfig& config, int slot)
    : state_(std::make_unique<State>()) {
  state_->job_labels = {{"namespace", config.job.name_space}, {"job_name", config.job.name}};
  state_->slot = slot;
  state_->ranks_here = config.nproc;
  state_->precision = config.training.value("precision", "");
  if (state_->precision == "fp32" && config.training.value("tf32", false)) state_->precision = "tf32";
  AddBuildInfo(state_->registry, "lockstep");
  // Visible at zero before the first event, so that rates see it.
  state_->Count(metric::kCheckpointsTotal, kSavesHelp, 0);
  state_->Count(metric::kCheckpointFailuresTotal, kFailuresHelp, 0);
}

TrainingMetrics::~TrainingMetrics() = default;

// Stable over rounds, unlike the rank: dashboards follow one process.
TrainingMetrics::Labels TrainingMetrics::RankLabels(int local_rank) const {
  return {{"rank", std::to_string(state_->slot) + "." + std::to_string(local_rank)}};
}

void TrainingMetrics::Observe(int local_rank, const protocol::FromRank& message) {
  const MutexLock lock(state_->mutex);
  std::visit([&](const auto& m)
                 LOCKSTEP_REQUIRES(state_->mutex) { state_->Observe(RankLabels(local_rank), m); },
             message);
}

void TrainingMetrics::SetPlace(int local_rank, int rank, int world_size) {
  const MutexLock lock(state_->mutex);
  state_->world = world_size;
  if (local_rank == 0 && rank != 0) state_->SetEvaluation({}, {});
}

void TrainingMetrics::SetMemory(int local_rank, double bytes) {
  const MutexLock lock(state_->mutex);
  state_->Set(metric::kRankMemory, "Memory of the host that the rank's process holds.", bytes,
              RankLabels(local_rank));
}

void TrainingMetrics::CountHang(int local_rank) {
  const MutexLock lock(state_->mutex);
  state_->Count(metric::kHangsTotal, "Times that a rank was found to hang.", 1, RankLabels(local_rank));
}

void TrainingMetrics::Observe(const std::vector<GpuReading>& gpus) {
  const MutexLock lock(state_->mutex);
  state_->SetPeak(gpus);
  for (const GpuReading& gpu : gpus) state_->Observe(RankLabels(gpu.local_rank), gpu);
}

http::Response TrainingMetrics::Scrape() const { return MetricsResponse(state_->registry); }

}  // namespace lockstep::telemetry
