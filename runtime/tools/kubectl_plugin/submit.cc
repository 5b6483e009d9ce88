#include <algorithm>
#include <iostream>

#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/follow.h"
#include "runtime/tools/kubectl_plugin/json_stream.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

constexpr const char* kStandardInput = "-";

void AddJobs(const Json& object, std::vector<JobName>& jobs) {
  if (const Json* items = FindJson(object, {"items"})) {
    for (const Json& item : *items) AddJobs(item, jobs);
  } else if (StringAt(object, {"kind"}) == api::kKind) {
    jobs.push_back({StringAt(object, {"metadata", "name"}), StringAt(object, {"metadata", "namespace"})});
  }
}

// kubectl prints a single object as such, several as a list.
Result<std::vector<JobName>> Apply(const Kubectl& kubectl, const std::vector<std::string>& files) {
  std::vector<std::string> words = {"apply", "--server-side", "--output=json"};
  for (const std::string& file : files) words.push_back("--filename=" + file);
  const bool is_piped = std::find(files.begin(), files.end(), kStandardInput) != files.end();
  LOCKSTEP_TRY(const std::string text,
               kubectl.Run(words, is_piped ? Kubectl::Input::kOurs : Kubectl::Input::kNone));
  std::vector<JobName> jobs;
  for (const std::string& part : JsonStream().Add(text)) {
    LOCKSTEP_TRY(const Json object, ParseJson(part));
    AddJobs(object, jobs);
  }
  return jobs;
}

}  // namespace

Result<int> Submit(const Kubectl& kubectl, const SubmitArguments& arguments) {
  LOCKSTEP_TRY(const std::vector<JobName> jobs, Apply(kubectl, arguments.files));
  if (jobs.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the files were applied, but there is no " + std::string(api::kKind) + " in them"};
  }
  for (const JobName& job : jobs)
    std::cout << job.name << " is submitted to namespace " << job.namespace_name << std::endl;
  int code = 0;
  if (!arguments.wait) return code;
  for (const JobName& job : jobs) {
    LOCKSTEP_TRY(const int of_job, Follow(kubectl, job));
    code = std::max(code, of_job);
  }
  return code;
}

}  // namespace lockstep::kubectl_plugin
