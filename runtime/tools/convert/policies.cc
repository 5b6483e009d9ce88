#include "runtime/tools/convert/policies.h"

#include <algorithm>
#include <utility>

namespace lockstep::convert {
namespace {

constexpr int64_t kNoLimit = 1'000'000;  // the maximum of failurePolicy.maxRestarts
constexpr int64_t kMostInPlace = 1000;   // the maximum of inPlaceLimit

Json PermanentCodes(const char* name, int first, int last) {
  Json values = Json::array();
  for (int code = first; code <= last; ++code) values.push_back(code);
  return {{"name", name},
          {"action", "FailJob"},
          {"onExitCodes", {{"operator", "In"}, {"values", std::move(values)}}}};
}

void ConvertRestartPolicy(Conversion& job, Json& ours) {
  if (job.restart_policy == "ExitCode") {
    ours["rules"] = {PermanentCodes("permanent-exit-code", 1, 64),
                     PermanentCodes("permanent-exit-code-from-65", 65, 127)};
    job.Comment(
        "spec.failurePolicy.rules",
        "As in Kubeflow, 1 to 127 fail the job: also 1 of a script that ends because a peer is gone.");
    if (job.pods.launch.is_torchrun) {
      job.notices.Warn(
          job.restart_path,
          "is ExitCode: torchrun ended with 1 whatever the script's code was; here the rules see the "
          "script's own");
    }
  } else if (job.restart_policy == "Always") {
    job.notices.Warn(job.restart_path, "is Always: what ended with 0 is not started again here");
  } else if (job.restart_policy != "OnFailure" && job.restart_policy != "Never") {
    job.notices.Fail(job.restart_path,
                     "must be Always, OnFailure, Never or ExitCode, not " + job.restart_policy);
  }
}

}  // namespace

void ConvertFailures(Conversion& job) {
  const auto backoff = job.reader.TakeInteger("spec.runPolicy.backoffLimit");
  auto in_place = job.reader.TakeInteger("spec.elasticPolicy.maxRestarts");
  if (const std::string flag = job.Flag("--max_restarts"); !flag.empty()) {
    in_place = IntegerFrom(flag);
    if (!in_place) job.notices.Fail(job.FlagPath("--max_restarts"), "must be a number, not " + flag);
  }
  Json& ours = job.Spec()["failurePolicy"];
  if (job.restart_policy == "Never") {
    ours["maxRestarts"] = 0;
    if (!in_place) in_place = 0;
    if (backoff)
      job.notices.Warn("spec.runPolicy.backoffLimit",
                       "is not needed: with restartPolicy Never nothing is restarted");
  } else if (backoff) {
    ours["maxRestarts"] = *backoff;
  } else {
    ours["maxRestarts"] = kNoLimit;
    job.Comment("spec.failurePolicy.maxRestarts",
                "As in Kubeflow, which has no limit without backoffLimit. Lockstep's default is 3.");
  }
  if (in_place) ours["inPlaceLimit"] = std::min(*in_place, kMostInPlace);
  ConvertRestartPolicy(job, ours);
}

void ConvertRunPolicy(Conversion& job) {
  Json& ours = job.Spec()["runPolicy"];
  const std::string clean = job.reader.TakeText("spec.runPolicy.cleanPodPolicy");
  ours["cleanPodPolicy"] = clean.empty() ? "None" : clean;
  for (const char* field : {"ttlSecondsAfterFinished", "activeDeadlineSeconds"}) {
    if (const auto seconds = job.reader.TakeInteger(std::string("spec.runPolicy.") + field))
      ours[field] = *seconds;
  }
  if (StringAt(job.source, {"spec", "runPolicy", "managedBy"}) == "kubeflow.org/training-operator")
    static_cast<void>(job.reader.Take("spec.runPolicy.managedBy"));
  const Json* suspend = job.reader.Take("spec.runPolicy.suspend");
  if (suspend == nullptr || *suspend != Json(true)) return;
  if (job.Spec().contains("schedulingPolicy")) {
    job.notices.Warn(
        "spec.runPolicy.suspend",
        "is left out: Kueue sets it where a PyTorchJob queues; here queueName alone holds the job");
  } else {
    job.Spec()["suspend"] = true;
  }
}

void ConvertScheduling(Conversion& job) {
  const std::string path = "spec.runPolicy.schedulingPolicy.";
  const auto least = job.reader.TakeInteger(path + "minAvailable");
  const auto timeout = job.reader.TakeInteger(path + "scheduleTimeoutSeconds");
  const std::string priority = job.reader.TakeText(path + "priorityClass");
  if (StringAt(job.source, {"spec", "runPolicy", "schedulingPolicy", "queue"}) == "default")
    static_cast<void>(job.reader.Take(path + "queue"));
  if (FindJson(job.source, {"spec", "runPolicy", "schedulingPolicy"}) == nullptr) return;
  Json& ours = job.Spec()["schedulingPolicy"];
  ours["gang"]["provider"] = "Auto";
  if (least) ours["gang"]["minCount"] = *least;
  if (timeout) ours["gang"]["scheduleTimeoutSeconds"] = *timeout;
  if (priority.empty()) return;
  const std::string of_pods = StringAt(job.pods.value, {"spec", "priorityClassName"});
  if (of_pods.empty() || of_pods == priority) {
    ours["priorityClassName"] = priority;
  } else {
    job.notices.Warn(path + "priorityClass", "is left out: the pods of the template have " + of_pods);
  }
}

// Kubeflow's controller considers the pod of the master, or any pod of an elastic job without one.
void ConvertSuccess(Conversion& job) {
  if (job.replicas < 2 || (!job.has_master && !job.is_elastic)) return;
  job.Spec()["successPolicy"]["type"] = job.has_master ? "Rank0" : "Any";
  job.Comment("spec.successPolicy", std::string("As in Kubeflow: the end of ") +
                                        (job.has_master ? "the master" : "any pod") +
                                        " completes the job. All waits for all pods.");
}

}  // namespace lockstep::convert
