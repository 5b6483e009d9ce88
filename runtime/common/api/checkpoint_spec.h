#pragma once
// spec.checkpoint: where and when the training state is saved. Parsed by the operator, the command line and
// every rank. Values, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/enum_text.h"
#include "runtime/common/base/json.h"

namespace lockstep::api {

enum class ResumeMode { kAuto, kNever, kStep };
enum class RestoredPart { kAll, kWeights };
enum class OnTermination { kSave, kNone };
enum class CheckpointInterval { kFixed, kAuto };

// Auto: from the newest complete checkpoint if there is one; Never: ignore existing checkpoints; or from
// exactly `step`. Written as "Auto", "Never" or an integer.
struct ResumeFrom {
  ResumeMode mode = ResumeMode::kAuto;
  int64_t step = 0;  // if mode is kStep

  friend bool operator==(const ResumeFrom&, const ResumeFrom&) = default;
};

struct SecretReference {
  std::string name;
};

// A checkpoint is written after the last step, on termination (if enabled), and when either interval has
// passed since the last one. Auto: the interval follows from the duration of a save and the mean time between
// failures.
struct CheckpointSpec {
  std::string uri;  // s3://bucket/prefix, likewise gs:// and abfs://, or file:///folder
  std::optional<SecretReference> secret_ref;
  CheckpointInterval interval = CheckpointInterval::kFixed;
  int64_t mean_time_between_failures_seconds = 14400;  // for Auto: the mean time between losses of all ranks
  std::optional<int64_t> interval_steps;
  std::optional<int64_t> interval_seconds;
  int32_t keep_last = 3;
  std::optional<int64_t> keep_every_steps;         // the first at or after each multiple is never removed
  std::optional<int64_t> upload_bytes_per_second;  // of each rank, while it trains
  bool delete_with_job = false;  // everything that this job (by its uid) stored below the URI
  ResumeFrom resume;
  RestoredPart restore = RestoredPart::kAll;  // when resuming from another job's checkpoint
  OnTermination on_termination = OnTermination::kSave;
  int32_t grace_period_seconds = 120;
};

[[nodiscard]] CheckpointSpec CheckpointSpecFromJson(const Json& json, const std::string& path,
                                                    std::vector<std::string>& violations);
[[nodiscard]] Json CheckpointSpecToJson(const CheckpointSpec& spec);

[[nodiscard]] constexpr auto WordsOf(CheckpointInterval) {
  return std::to_array<std::string_view>({"Fixed", "Auto"});
}

[[nodiscard]] constexpr auto WordsOf(RestoredPart) {
  return std::to_array<std::string_view>({"All", "Weights"});
}

[[nodiscard]] constexpr auto WordsOf(OnTermination) {
  return std::to_array<std::string_view>({"Save", "None"});
}

}  // namespace lockstep::api
