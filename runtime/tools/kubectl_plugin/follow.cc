#include "runtime/tools/kubectl_plugin/follow.h"

#include <unistd.h>

#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/common/api/conditions.h"
#include "runtime/tools/kubectl_plugin/job_text.h"
#include "runtime/tools/kubectl_plugin/json_stream.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

constexpr int kJobFailed = 1;

enum class Watched { kRunning, kComplete, kFailed, kDeleted };

Result<Watched> Show(const Json& event, JobView& view) {
  const Json* object = FindJson(event, {"object"});
  if (object == nullptr) return Watched::kRunning;
  if (StringAt(event, {"type"}) == "DELETED") return Watched::kDeleted;
  const api::TrainingJob job = JobFrom(*object);
  LOCKSTEP_TRY(view.Draw(job));
  if (api::IsTrue(job.status.conditions, api::condition::kComplete)) return Watched::kComplete;
  return api::IsFinished(job.status.conditions) ? Watched::kFailed : Watched::kRunning;
}

// Until the job ends, or the API server ends the watch, as it regularly does.
Result<Watched> WatchOnce(const Kubectl& kubectl, const JobName& job, JobView& view) {
  JsonStream stream;
  Result<Watched> reached = Watched::kRunning;
  const auto take = [&](std::string_view bytes) {
    for (const std::string& text : stream.Add(bytes)) {
      const Result<Json> event = ParseJson(text);
      reached = event.ok() ? Show(*event, view) : Result<Watched>(event.error());
      if (!reached.ok() || *reached != Watched::kRunning) return false;
    }
    return true;
  };
  std::vector<std::string> words = {"get",          kJobs, job.name, "--watch", "--output-watch-events",
                                    "--output=json"};
  if (!job.namespace_name.empty()) words.push_back("--namespace=" + job.namespace_name);
  LOCKSTEP_TRY(kubectl.Stream(words, take));
  return reached;
}

}  // namespace

Result<void> JobView::Draw(const api::TrainingJob& job) {
  LOCKSTEP_TRY(std::vector<PodRow> pods, GetPods(kubectl_, job));
  // Ranks move only with a new round, and reading logs is the most expensive part.
  const int64_t round = job.status.rendezvous ? job.status.rendezvous->round : 0;
  if (!pods.empty() && places_.newest_round() < round) places_ = FindPlaces(kubectl_, job);
  constexpr const char* kHomeAndEmpty = "\033[H\033[2J";
  if (is_drawn_) std::cout << (::isatty(STDOUT_FILENO) == 1 ? kHomeAndEmpty : "\n");
  is_drawn_ = true;
  for (const std::string& line : JobText(job, std::move(pods), places_, SystemClock().Now()))
    std::cout << line << "\n";
  std::cout << std::flush;
  return {};
}

Result<int> Follow(const Kubectl& kubectl, const JobName& job) {
  JobView view(kubectl);
  while (true) {
    LOCKSTEP_TRY(const Watched reached, WatchOnce(kubectl, job, view));
    if (reached == Watched::kComplete) return 0;
    if (reached == Watched::kFailed) return kJobFailed;
    if (reached == Watched::kDeleted) return Error{ErrorCode::kGone, job.name + " was deleted"};
    std::this_thread::sleep_for(kBetweenWatches);
  }
}

}  // namespace lockstep::kubectl_plugin
