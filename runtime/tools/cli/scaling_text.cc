#include "runtime/tools/cli/scaling_text.h"

#include <cmath>
#include <utility>

#include "runtime/common/api/scaling_advice.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::cli {
namespace {

using command_line::CountText;

std::string PercentText(double share) { return std::to_string(std::llround(share * 100)) + " %"; }

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

std::string Followed(std::string text, const std::string& hint) {
  return hint.empty() ? text : text + " " + hint;
}

std::string RecommendationFrom(const api::ScalingAdvice& advice, const ScalingHints& hints) {
  if (advice.sizes.empty()) return hints.nothing_measured;
  if (advice.sizes.size() == 1)
    return Followed("Nothing can be compared: only one size was measured.", hints.measure_more);
  const std::string recommended = "Recommended: " + CountText(advice.recommended, "rank") +
                                  ", the largest measured size with an efficiency of at least " +
                                  PercentText(api::kGoodEfficiency) + ".";
  if (!advice.shortfall.has_value()) return Followed(recommended, hints.measure_more);
  const api::MeasuredSize& size = advice.shortfall->size;
  return recommended + " The efficiency of " + CountText(size.record.world_size, "rank") + " is " +
         PercentText(size.efficiency) + ", limited " +
         LimitText(*advice.shortfall, advice.sizes.front().record) + ".";
}

}  // namespace

std::string SpeedText(double samples_per_second) {
  return samples_per_second < 1000 ? FormatNumber(samples_per_second)
                                   : std::to_string(std::llround(samples_per_second));
}

command_line::Lines ScalingText(const std::vector<api::ScalingRecord>& records, const ScalingHints& hints,
                                WallTime now) {
  const api::ScalingAdvice advice = api::AdviceFrom(records);
  command_line::Lines lines;
  if (!advice.sizes.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"RANKS", "SAMPLES/S", "PER RANK", "EFFICIENCY", "COMMUNICATION", "DATA", "STEPS", "MEASURED"}};
    for (const auto& [record, efficiency] : advice.sizes) {
      rows.push_back({std::to_string(record.world_size), SpeedText(record.samples_per_second),
                      SpeedText(record.samples_per_second / record.world_size), PercentText(efficiency),
                      PercentText(record.communication), PercentText(record.data),
                      std::to_string(record.steps),
                      record.time ? command_line::AgeText(*record.time, now) + " ago" : ""});
    }
    lines = command_line::Columns(rows);
    lines.emplace_back("");
  }
  lines.push_back(RecommendationFrom(advice, hints));
  return lines;
}

Json ScalingToJson(const std::vector<api::ScalingRecord>& records, const ScalingHints& hints) {
  const api::ScalingAdvice advice = api::AdviceFrom(records);
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
  Json json = {{"sizes", std::move(sizes)}, {"recommendation", RecommendationFrom(advice, hints)}};
  if (advice.sizes.size() > 1) json["recommendedWorldSize"] = advice.recommended;
  return json;
}

}  // namespace lockstep::cli
