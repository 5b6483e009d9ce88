#include <iostream>

#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/follow.h"
#include "runtime/tools/kubectl_plugin/job_text.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

Result<int> ShowTable(const Kubectl& kubectl, const StatusArguments& arguments) {
  std::vector<std::string> words = {"get", kJobs, "--output=json"};
  if (arguments.all_namespaces) words.emplace_back("--all-namespaces");
  LOCKSTEP_TRY(const std::string text, kubectl.Run(words));
  if (arguments.as_json) {
    std::cout << text;
    return 0;
  }
  LOCKSTEP_TRY(const Json list, ParseJson(text));
  std::vector<api::TrainingJob> jobs;
  if (const Json* items = FindJson(list, {"items"})) {
    for (const Json& item : *items) jobs.push_back(JobFrom(item));
  }
  if (jobs.empty()) {
    std::cout << "no jobs" << (arguments.all_namespaces ? "" : " in this namespace; -A shows all namespaces")
              << "\n";
    return 0;
  }
  for (const std::string& line : JobTable(jobs, arguments.all_namespaces, SystemClock().Now()))
    std::cout << line << "\n";
  return 0;
}

// Prints the object as the API server has it, and its pods with their ranks, which are in no object.
Result<int> ShowJson(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const std::string text, kubectl.Run({"get", kJobs, name, "--output=json"}));
  LOCKSTEP_TRY(Json object, ParseJson(text));
  const api::TrainingJob job = JobFrom(object);
  LOCKSTEP_TRY(std::vector<PodRow> pods, GetPods(kubectl, job));
  const RankPlaces places = pods.empty() ? RankPlaces() : FindPlaces(kubectl, job);
  object["pods"] = PodsToJson(std::move(pods), places);
  std::cout << object.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return 0;
}

}  // namespace

Result<int> Status(const Kubectl& kubectl, const StatusArguments& arguments) {
  if (arguments.job.empty()) return ShowTable(kubectl, arguments);
  if (arguments.as_json) return ShowJson(kubectl, arguments.job);
  if (arguments.watch) return Follow(kubectl, {.name = arguments.job, .namespace_name = ""});
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, arguments.job));
  LOCKSTEP_TRY(JobView(kubectl).Draw(job));
  return 0;
}

}  // namespace lockstep::kubectl_plugin
