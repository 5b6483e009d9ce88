#include "runtime/tools/kubectl_plugin/scaling_hints.h"

#include "runtime/common/api/conditions.h"

namespace lockstep::kubectl_plugin {
namespace {

std::string HowToMeasureAnother(const api::TrainingJob& job) {
  if (api::IsFinished(job.status.conditions)) return "";
  const std::string fixed =
      job.spec.elastic_policy ? "" : "Its size is fixed: give it spec.elasticPolicy, or suspend it first. ";
  return fixed + "To measure another size, scale the job (`kubectl lockstep scale " + job.metadata.name +
         " PODS`) and let it train for at least 10 steps and 10 s.";
}

std::string WhyNothingIsMeasured(const api::TrainingJob& job) {
  if (!job.spec.training) {
    return "Not measured: the samples of a program of your own are known only if it joins with the Python "
           "package, and trains for at least 10 steps and 10 s in one round.";
  }
  if (api::IsFinished(job.status.conditions))
    return "Not measured: " + job.metadata.name + " has ended before it had trained long enough.";
  return "Not measured yet: that takes at least 10 steps and 10 s of training in one round.";
}

}  // namespace

cli::ScalingHints ScalingHintsFor(const api::TrainingJob& job) {
  return {.nothing_measured = WhyNothingIsMeasured(job), .measure_more = HowToMeasureAnother(job)};
}

}  // namespace lockstep::kubectl_plugin
