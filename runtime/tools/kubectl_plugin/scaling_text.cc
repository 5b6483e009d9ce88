#include "runtime/tools/kubectl_plugin/scaling_text.h"

#include <cmath>
#include <utility>

#include "runtime/common/api/conditions.h"
#include "runtime/common/api/scaling_advice.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::kubectl_plugin {
namespace {

std::string PercentText(double share) { return std::to_string(std::llround(share * 100)) + " %"; }

std::string HowToMeasureAnother(const api::TrainingJob& job) {
  if (api::IsFinished(job.status.conditions)) return "";
  const std::string fixed =
      job.spec.elastic_policy ? "" : "Its size is fixed: give it spec.elasticPolicy, or suspend it first. ";
  return " " + fixed + "To measure another size, scale the job (`kubectl lockstep scale " +
         job.metadata.name + " PODS`) and let it train for at least 10 steps and 10 s.";
}

std::string WhyNothingIsMeasured(const api::TrainingJob& job) {
  if (!job.spec.training)
    return "Not measured: " + job.metadata.name + " runs a program of your own, whose samples are unknown.";
  if (api::IsFinished(job.status.conditions))
    return "Not measured: " + job.metadata.name + " has ended before it had trained long enough.";
  return "Not measured yet: that takes at least 10 steps and 10 s of training in one round.";
}

std::string LimitText(const api::Shortfall& shortfall, const api::ScalingRecord& smallest) {
  const api::ScalingRecord& record = shortfall.size.record;
  const std::string with = " with " + CountText(smallest.world_size, "rank");
  switch (shortfall.limit) {
    case api::ScalingLimit::kCommunication:
      return "mostly by communication: a rank waits for other ranks in " + PercentText(record.communication) +
             " of its time, and" + with + " in " + PercentText(smallest.communication);
    case api::ScalingLimit::kData:
      return "mostly by data: a rank waits for samples in " + PercentText(record.data) + " of its time, and" +
             with + " in " + PercentText(smallest.data);
    case api::ScalingLimit::kCompute: break;
  }
  return "mostly by computing: a rank computes " + FormatNumber(shortfall.compute_growth, 2) +
         " times as long for a sample as" + with +
         ", because it has too little work or shares its processor with other ranks";
}

std::string RecommendationFor(const api::TrainingJob& job, const api::ScalingAdvice& advice) {
  if (advice.sizes.empty()) return WhyNothingIsMeasured(job);
  if (advice.sizes.size() == 1)
    return "Nothing can be compared: only one size was measured." + HowToMeasureAnother(job);
  const std::string recommended = "Recommended: " + CountText(advice.recommended, "rank") +
                                  ", the largest measured size with an efficiency of at least " +
                                  PercentText(api::kGoodEfficiency) + ".";
  if (!advice.shortfall.has_value()) return recommended + HowToMeasureAnother(job);
  const api::MeasuredSize& size = advice.shortfall->size;
  return recommended + " The efficiency of " + CountText(size.record.world_size, "rank") + " is " +
         PercentText(size.efficiency) + ", limited " +
         LimitText(*advice.shortfall, advice.sizes.front().record) + ".";
}

}  // namespace

Lines ScalingText(const api::TrainingJob& job, WallTime now) {
  const api::ScalingAdvice advice = api::AdviceFrom(job.status.scaling);
  Lines lines;
  if (!advice.sizes.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"RANKS", "SAMPLES/S", "PER RANK", "EFFICIENCY", "COMMUNICATION", "DATA", "STEPS", "MEASURED"}};
    for (const auto& [record, efficiency] : advice.sizes) {
      rows.push_back({std::to_string(record.world_size), FormatNumber(record.samples_per_second),
                      FormatNumber(record.samples_per_second / record.world_size), PercentText(efficiency),
                      PercentText(record.communication), PercentText(record.data),
                      std::to_string(record.steps), record.time ? AgeText(*record.time, now) + " ago" : ""});
    }
    lines = Columns(rows);
    lines.emplace_back("");
  }
  lines.push_back(RecommendationFor(job, advice));
  return lines;
}

Json ScalingToJson(const api::TrainingJob& job) {
  const api::ScalingAdvice advice = api::AdviceFrom(job.status.scaling);
  Json sizes = Json::array();
  for (const auto& [record, efficiency] : advice.sizes) {
    Json size = {{"worldSize", record.world_size},
                 {"samplesPerSecond", record.samples_per_second},
                 {"efficiency", efficiency},
                 {"communication", record.communication},
                 {"data", record.data},
                 {"steps", record.steps}};
    if (record.time) size["time"] = FormatTime(*record.time);
    sizes.push_back(std::move(size));
  }
  Json json = {{"sizes", std::move(sizes)}, {"recommendation", RecommendationFor(job, advice)}};
  if (advice.sizes.size() > 1) json["recommendedWorldSize"] = advice.recommended;
  return json;
}

}  // namespace lockstep::kubectl_plugin
