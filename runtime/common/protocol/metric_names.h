#pragma once
// Names of the metrics that workers export; dashboards, rules and their tests use the same names. Labels:
// namespace and job_name (never `job`, which the scrape sets); "rank" below means replica and local_rank as
// well. Base units; counters end in _total.

namespace lockstep::protocol::metric {

inline constexpr const char* kRankInfo = "lockstep_rank_info";                // rank, and its global rank
inline constexpr const char* kStepsTotal = "lockstep_train_steps_total";      // rank
inline constexpr const char* kSamplesTotal = "lockstep_train_samples_total";  // rank
inline constexpr const char* kTokensTotal = "lockstep_train_tokens_total";    // rank
inline constexpr const char* kRepeatedStepsTotal = "lockstep_train_repeated_steps_total";    // rank
inline constexpr const char* kSkippedStepsTotal = "lockstep_train_skipped_steps_total";      // rank
inline constexpr const char* kCorruptRecordsTotal = "lockstep_train_corrupt_records_total";  // rank
inline constexpr const char* kPhaseSecondsTotal = "lockstep_train_phase_seconds_total";      // rank, phase
inline constexpr const char* kCommunicationBytesTotal = "lockstep_train_communication_bytes_total";  // rank
inline constexpr const char* kRankMemory = "lockstep_rank_memory_bytes";                             // rank
inline constexpr const char* kRankCheckpointMemory = "lockstep_rank_checkpoint_memory_bytes";        // rank
inline constexpr const char* kStep = "lockstep_train_step";                                          // rank
inline constexpr const char* kStepSeconds = "lockstep_train_step_seconds";
inline constexpr const char* kPlannedSteps = "lockstep_train_planned_steps";
inline constexpr const char* kEpoch = "lockstep_train_epoch";
inline constexpr const char* kLoss = "lockstep_train_loss";
inline constexpr const char* kLearningRate = "lockstep_train_learning_rate";
inline constexpr const char* kGradientNorm = "lockstep_train_gradient_norm";
inline constexpr const char* kEvaluationLoss = "lockstep_evaluation_loss";
inline constexpr const char* kEvaluationAccuracy = "lockstep_evaluation_accuracy_ratio";
inline constexpr const char* kRound = "lockstep_rendezvous_round";
inline constexpr const char* kRoundsTotal = "lockstep_rendezvous_rounds_total";     // rank, state_from
inline constexpr const char* kSyncSeconds = "lockstep_sync_last_duration_seconds";  // rank
inline constexpr const char* kRankStartsTotal = "lockstep_rank_starts_total";       // rank
inline constexpr const char* kHangsTotal = "lockstep_rank_hangs_total";             // rank
inline constexpr const char* kCheckpointsTotal = "lockstep_checkpoint_saves_total";
inline constexpr const char* kCheckpointFailuresTotal = "lockstep_checkpoint_failures_total";
inline constexpr const char* kCheckpointSeconds = "lockstep_checkpoint_last_duration_seconds";
inline constexpr const char* kCheckpointStallSecondsTotal = "lockstep_checkpoint_stall_seconds_total";
inline constexpr const char* kCheckpointBytesTotal = "lockstep_checkpoint_bytes_total";
inline constexpr const char* kCheckpointTimestamp = "lockstep_checkpoint_last_success_timestamp_seconds";
inline constexpr const char* kCheckpointStep = "lockstep_checkpoint_step";
inline constexpr const char* kModelFlopsPerSample = "lockstep_model_flops_per_sample";
inline constexpr const char* kMfu = "lockstep_mfu_ratio";
// Labels of all that follow: rank, gpu (its number in the pod, as CUDA counts), uuid.
inline constexpr const char* kGpuUtilization = "lockstep_gpu_utilization_ratio";
inline constexpr const char* kGpuMemoryUsed = "lockstep_gpu_memory_used_bytes";
inline constexpr const char* kGpuMemoryTotal = "lockstep_gpu_memory_total_bytes";
inline constexpr const char* kGpuPower = "lockstep_gpu_power_watts";
inline constexpr const char* kGpuTemperature = "lockstep_gpu_temperature_celsius";
inline constexpr const char* kGpuXidErrorsTotal = "lockstep_gpu_xid_errors_total";  // xid
inline constexpr const char* kGpuEccErrorsTotal = "lockstep_gpu_ecc_errors_total";

}  // namespace lockstep::protocol::metric
