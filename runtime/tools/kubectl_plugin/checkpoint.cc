#include <iostream>
#include <thread>

#include "runtime/common/api/names.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"
#include "runtime/tools/kubectl_plugin/change_rules.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/json_stream.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

constexpr std::string_view kWhichProgramsSave =
    ". A program saves on request if it has called lockstep.join with `checkpoints`";

// Returns when the API server stored the request, by its clock.
Result<WallTime> RequestSave(const Kubectl& kubectl, const std::string& job) {
  const WallTime now = SystemClock().Now();
  const std::string request = FormatTime(now) + " " + RandomHex(4);
  LOCKSTEP_TRY(const std::string text, kubectl.Run({"annotate", kJobs, job, "--overwrite",
                                                    std::string(api::kAnnotationSave) + "=" + request,
                                                    "--output=json", "--show-managed-fields"}));
  LOCKSTEP_TRY(const Json object, ParseJson(text));
  return TimeOfSaveRequest(object, now);
}

Result<api::CheckpointStatus> Await(const Kubectl& kubectl, const api::TrainingJob& before,
                                    WallTime requested, SteadyTime deadline) {
  JsonStream stream;
  std::optional<Result<api::CheckpointStatus>> answer;
  const auto take = [&](std::string_view bytes) {
    for (const std::string& text : stream.Add(bytes)) {
      const Result<Json> object = ParseJson(text);
      if (!object.ok()) continue;
      const api::TrainingJob job = JobFrom(*object);
      const Result<bool> is_answered = IsAnswered(job, requested, before.status.checkpoint);
      if (!is_answered.ok()) answer = is_answered.error();
      if (is_answered.ok() && *is_answered) answer = *job.status.checkpoint;
      if (answer) return false;
    }
    return true;
  };
  while (true) {
    LOCKSTEP_TRY(
        kubectl.Stream({"get", kJobs, before.metadata.name, "--watch", "--output=json"}, take, deadline));
    if (answer) return *answer;
    stream = JsonStream();  // drops an object that was cut off with the watch
    std::this_thread::sleep_for(kBetweenWatches);
  }
}

}  // namespace

Result<int> Checkpoint(const Kubectl& kubectl, const CheckpointArguments& arguments) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, arguments.job));
  LOCKSTEP_TRY(MayCheckpoint(job));
  LOCKSTEP_TRY(const WallTime requested, RequestSave(kubectl, arguments.job));
  if (!arguments.wait) {
    std::cout << arguments.job << " is asked to save a checkpoint; `kubectl lockstep status " << arguments.job
              << "` shows it once it is stored\n";
    return 0;
  }
  const auto stored = Await(kubectl, job, requested, std::chrono::steady_clock::now() + arguments.timeout);
  if (!stored.ok() && stored.error().code == ErrorCode::kDeadlineExceeded) {
    return Error{ErrorCode::kDeadlineExceeded,
                 arguments.job + " was asked, but has stored no checkpoint within " +
                     std::to_string(arguments.timeout.count()) + " s; the request remains"};
  }
  LOCKSTEP_TRY(const api::CheckpointStatus checkpoint, stored);
  std::cout << arguments.job << " has stored step " << checkpoint.step.value_or(0) << ": " << checkpoint.uri
            << "\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
