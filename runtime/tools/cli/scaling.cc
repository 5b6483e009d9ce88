#include <stdlib.h>

#include <filesystem>
#include <iostream>

#include "runtime/common/api/scaling_advice.h"
#include "runtime/common/base/processors.h"
#include "runtime/common/command_line/text.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/run/local_run.h"
#include "runtime/launch/run/machine_config.h"
#include "runtime/launch/run/size_measurement.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/manifest_file.h"
#include "runtime/tools/cli/scaling_job.h"
#include "runtime/tools/cli/scaling_text.h"

namespace lockstep::cli {
namespace {

using command_line::CountText;

constexpr int kInterrupted = static_cast<int>(protocol::ExitCode::kPreempted);
const ScalingHints kHints{.nothing_measured = "Not measured: no size trained long enough.",
                          .measure_more = "To measure another size, add it to --replicas."};

// Logs, configuration and copies of remote data, until the sizes are measured.
class ScalingFolder {
 public:
  ScalingFolder() : path_((std::filesystem::temp_directory_path() / "lockstep-scaling-XXXXXX").string()) {
    exists_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~ScalingFolder() {
    std::error_code ignored;
    if (exists_) std::filesystem::remove_all(path_, ignored);
  }
  ScalingFolder(const ScalingFolder&) = delete;
  ScalingFolder& operator=(const ScalingFolder&) = delete;

  [[nodiscard]] bool exists() const { return exists_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool exists_ = false;
};

int WorldSizeOf(const api::TrainingJob& job, int replicas) {
  return replicas * launch::WorkerConfigOn({}, job).nproc;
}

// kCancelled: interrupted.
Result<api::ScalingRecord> Measure(const api::TrainingJob& job, int replicas, int steps,
                                   const std::string& folder) {
  const int world_size = WorldSizeOf(job, replicas);
  launch::SizeMeasurement measurement(world_size, steps);
  const launch::RunOptions options{.job = JobOfSize(job, replicas, folder),
                                   .folder = folder + "/" + std::to_string(replicas),
                                   .program = launch::ProgramFolder() + "/lockstep"};
  LOCKSTEP_TRY(const launch::RunEnd end, launch::RunUntil(options, [&](const auto& view) {
                 measurement.Take(view);
                 return measurement.IsComplete() || !measurement.failure().empty();
               }));
  if (end.code == kInterrupted) return Error{ErrorCode::kCancelled, "interrupted"};
  if (!measurement.failure().empty())
    return Error{ErrorCode::kInternal, command_line::OneLine(measurement.failure())};
  if (!measurement.IsComplete()) {
    const std::string code = "a worker ended with code " + std::to_string(end.code);
    return Error{ErrorCode::kInternal, end.reason.empty() ? code : command_line::OneLine(end.reason)};
  }
  api::ScalingRecord record = api::RecordOf(measurement.measured(), world_size);
  record.time = SystemClock().Now();
  return record;
}

struct MeasuredSizes {
  std::vector<api::ScalingRecord> records;
  std::vector<std::pair<int, Error>> failures;  // by replicas
  bool is_interrupted = false;
};

MeasuredSizes MeasureAll(const api::TrainingJob& job, const ScalingArguments& arguments,
                         const std::string& folder) {
  MeasuredSizes sizes;
  for (const int replicas : arguments.replicas) {
    std::cerr << "measuring " << CountText(WorldSizeOf(job, replicas), "rank") << ": " << std::flush;
    const Result<api::ScalingRecord> record = Measure(job, replicas, arguments.steps, folder);
    if (record.ok()) {
      sizes.records.push_back(*record);
      std::cerr << SpeedText(record->samples_per_second) << " samples/s\n";
      continue;
    }
    const Error& error = record.error();
    sizes.is_interrupted = error.code == ErrorCode::kCancelled;
    std::cerr << (sizes.is_interrupted ? "" : "failed: ") << error.message << "\n";
    if (sizes.is_interrupted) break;
    sizes.failures.emplace_back(replicas, error);
  }
  return sizes;
}

void Show(const MeasuredSizes& sizes, bool as_json) {
  const int processors = ThreadsPerRank(ProcessorsGiven(0), /*local_ranks=*/1);
  if (as_json) {
    Json json = ScalingToJson(sizes.records, kHints);
    json["processors"] = processors;
    for (const auto& [replicas, error] : sizes.failures)
      json["failures"].push_back({{"replicas", replicas}, {"reason", error.message}});
    std::cout << json.dump(2) << "\n";
    return;
  }
  for (const std::string& line : ScalingText(sizes.records, kHints, SystemClock().Now()))
    std::cout << line << "\n";
  std::cout << "These ranks shared the " << CountText(processors, "processor")
            << " of this machine: on machines of their own they scale differently.\n";
}

}  // namespace

int Scaling(const ScalingArguments& arguments) {
  const LoadedManifest loaded = LoadManifest(arguments.manifest);
  std::vector<std::string> problems = loaded.problems;
  if (problems.empty()) problems = ProblemsOfSizes(loaded.job, arguments.replicas);
  for (const std::string& problem : problems) std::cerr << arguments.manifest << ": " << problem << "\n";
  if (!problems.empty()) return command_line::kUsageError;
  const ScalingFolder folder;
  if (!folder.exists()) {
    std::cerr << "lockstep scaling: " << folder.path() << " cannot be created; set TMPDIR\n";
    return 1;
  }
  const MeasuredSizes sizes = MeasureAll(loaded.job, arguments, folder.path());
  Show(sizes, arguments.as_json);
  if (sizes.is_interrupted) return kInterrupted;
  return sizes.failures.empty() ? 0 : 1;
}

}  // namespace lockstep::cli
