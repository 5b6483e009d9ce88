#include <unistd.h>

#include <iostream>
#include <thread>

#include "runtime/common/api/conditions.h"
#include "runtime/kubectl_plugin/commands.h"
#include "runtime/kubectl_plugin/job_text.h"
#include "runtime/kubectl_plugin/json_stream.h"
#include "runtime/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

constexpr int kJobFailed = 1;

void Print(const Lines& lines) {
  for (const std::string& line : lines) std::cout << line << "\n";
  std::cout << std::flush;
}

Result<int> ShowTable(const Kubectl& kubectl, bool all_namespaces) {
  std::vector<std::string> words = {"get", kJobs, "--output=json"};
  if (all_namespaces) words.emplace_back("--all-namespaces");
  LOCKSTEP_TRY(const std::string text, kubectl.Run(words));
  LOCKSTEP_TRY(const Json list, ParseJson(text));
  std::vector<api::TrainingJob> jobs;
  if (const Json* items = FindJson(list, {"items"})) {
    for (const Json& item : *items) jobs.push_back(JobFrom(item));
  }
  if (jobs.empty()) {
    std::cout << "no jobs" << (all_namespaces ? "" : " in this namespace; -A shows those of all") << "\n";
  } else {
    Print(JobTable(jobs, all_namespaces, SystemClock().Now()));
  }
  return 0;
}

// Draws a job each time that it changes.
class Picture {
 public:
  explicit Picture(const Kubectl& kubectl) : kubectl_(kubectl) {}

  Result<void> Draw(const api::TrainingJob& job) {
    LOCKSTEP_TRY(std::vector<PodRow> pods, GetPods(kubectl_, job));
    // Ranks move with a round, and reading logs is the dearest part.
    const int64_t round = job.status.rendezvous ? job.status.rendezvous->round : 0;
    if (!pods.empty() && places_.newest_round() < round) places_ = FindPlaces(kubectl_, job);
    constexpr const char* kHomeAndEmpty = "\033[H\033[2J";
    if (is_drawn_) std::cout << (::isatty(STDOUT_FILENO) == 1 ? kHomeAndEmpty : "\n");
    is_drawn_ = true;
    Print(JobText(job, std::move(pods), places_, SystemClock().Now()));
    return {};
  }

 private:
  const Kubectl& kubectl_;
  RankPlaces places_;
  bool is_drawn_ = false;
};

enum class Watched { kGoesOn, kComplete, kFailed, kDeleted };

Result<Watched> Show(const Json& event, Picture& picture) {
  const Json* object = FindJson(event, {"object"});
  if (object == nullptr) return Watched::kGoesOn;
  if (StringAt(event, {"type"}) == "DELETED") return Watched::kDeleted;
  const api::TrainingJob job = JobFrom(*object);
  LOCKSTEP_TRY(picture.Draw(job));
  if (api::IsTrue(job.status.conditions, api::condition::kComplete)) return Watched::kComplete;
  return api::IsFinished(job.status.conditions) ? Watched::kFailed : Watched::kGoesOn;
}

// Until the job ends or the API server ends the watch, which it does every so often.
Result<Watched> WatchOnce(const Kubectl& kubectl, const std::string& name, Picture& picture) {
  JsonStream stream;
  Result<Watched> reached = Watched::kGoesOn;
  const auto take = [&](std::string_view bytes) {
    for (const std::string& text : stream.Add(bytes)) {
      const Result<Json> event = ParseJson(text);
      reached = event.ok() ? Show(*event, picture) : Result<Watched>(event.error());
      if (!reached.ok() || *reached != Watched::kGoesOn) return false;
    }
    return true;
  };
  LOCKSTEP_TRY(
      kubectl.Stream({"get", kJobs, name, "--watch", "--output-watch-events", "--output=json"}, take));
  return reached;
}

}  // namespace

Result<int> Status(const Kubectl& kubectl, const StatusArguments& arguments) {
  if (arguments.job.empty()) return ShowTable(kubectl, arguments.all_namespaces);
  Picture picture(kubectl);
  if (!arguments.watch) {
    LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, arguments.job));
    LOCKSTEP_TRY(picture.Draw(job));
    return 0;
  }
  while (true) {
    LOCKSTEP_TRY(const Watched reached, WatchOnce(kubectl, arguments.job, picture));
    if (reached == Watched::kComplete) return 0;
    if (reached == Watched::kFailed) return kJobFailed;
    if (reached == Watched::kDeleted) return Error{ErrorCode::kGone, arguments.job + " was deleted"};
    std::this_thread::sleep_for(kBetweenWatches);
  }
}

}  // namespace lockstep::kubectl_plugin
