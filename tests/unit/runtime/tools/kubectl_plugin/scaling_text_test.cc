#include "runtime/tools/kubectl_plugin/scaling_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/time_text.h"
#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kThreeSizes = R"([
  {"worldSize": 2, "samplesPerSecond": 640, "communication": 0.05, "data": 0.01,
   "steps": 120, "time": "2026-01-02T03:08:00Z"},
  {"worldSize": 4, "samplesPerSecond": 1152, "communication": 0.12, "data": 0.01,
   "steps": 80, "time": "2026-01-02T03:09:30Z"},
  {"worldSize": 8, "samplesPerSecond": 1280, "communication": 0.48, "data": 0.02,
   "steps": 95, "time": "2026-01-02T03:10:00Z"}])";

Json JobWith(const char* scaling) { return With(RunningJob(), "/status/scaling", scaling); }
Lines ScalingTextOf(const Json& job) { return ScalingText(Read(job), *ParseTime("2026-01-02T03:10:00Z")); }
std::string AdviceOf(const Json& job) { return ScalingTextOf(job).back(); }

TEST(ScalingText, ShowsTheSizesAndRecommendsOne) {
  EXPECT_THAT(
      ScalingTextOf(JobWith(kThreeSizes)),
      ElementsAre("RANKS  SAMPLES/S  PER RANK  EFFICIENCY  COMMUNICATION  DATA  STEPS  MEASURED",
                  "2      640        320       100 %       5 %            1 %   120    2 min ago",
                  "4      1152       288       90 %        12 %           1 %   80     30 s ago",
                  "8      1280       160       50 %        48 %           2 %   95     0 s ago", "",
                  "Recommended: 4 ranks, the largest measured size with an efficiency of at least 80 %. The "
                  "efficiency of 8 ranks is 50 %, limited mostly by communication: a rank waits for other "
                  "ranks in 48 % of its time, and with 2 ranks in 5 %."));
}

TEST(ScalingText, NamesEachLimit) {
  const auto advice = [](const char* four) {
    return AdviceOf(JobWith(
        (R"([{"worldSize": 1, "samplesPerSecond": 100, "data": 0.1},)" + std::string(four) + "]").c_str()));
  };
  EXPECT_THAT(advice(R"({"worldSize": 4, "samplesPerSecond": 200, "data": 0.5})"),
              HasSubstr("by data: a rank waits for samples in 50 % of its time, and with 1 rank in 10 %."));
  EXPECT_THAT(
      advice(R"({"worldSize": 4, "samplesPerSecond": 200, "data": 0.1})"),
      HasSubstr("by computing: a rank computes 2 times as long for a sample as with 1 rank, because it has "
                "too little work or shares its processor with other ranks."));
}

TEST(ScalingText, SaysHowToMeasureAnotherSize) {
  constexpr const char* kOne = R"([{"worldSize": 2, "samplesPerSecond": 640, "steps": 120}])";
  const std::string scale = "`kubectl lockstep scale fashion PODS`";
  EXPECT_THAT(AdviceOf(JobWith(kOne)),
              AllOf(StartsWith("Nothing can be compared: only one size was measured."), HasSubstr(scale)));
  EXPECT_THAT(AdviceOf(JobWith(R"([{"worldSize": 2, "samplesPerSecond": 640},
                                   {"worldSize": 4, "samplesPerSecond": 1200}])")),
              AllOf(StartsWith("Recommended: 4 ranks,"), HasSubstr(scale)));
  Json fixed = JobWith(kOne);
  fixed["spec"].erase("elasticPolicy");
  EXPECT_THAT(AdviceOf(fixed), HasSubstr("give it spec.elasticPolicy"));
  const Json ended = With(JobWith(kOne), "/status/conditions",
                          R"([{"type": "Complete", "status": "True", "reason": "TrainingDone", "message": "",
                               "lastTransitionTime": "2026-01-02T03:00:03Z"}])");
  EXPECT_THAT(AdviceOf(ended), Not(HasSubstr(scale)));
}

TEST(ScalingText, SaysWhyNothingIsMeasured) {
  EXPECT_THAT(
      ScalingTextOf(RunningJob()),
      ElementsAre("Not measured yet: that takes at least 10 steps and 10 s of training in one round."));
  Json program = RunningJob();
  program["spec"].erase("training");
  EXPECT_THAT(ScalingTextOf(program),
              ElementsAre(HasSubstr("program of your own, whose samples are unknown")));
}

TEST(ScalingText, IsAlsoJson) {
  const Json json = ScalingToJson(Read(JobWith(kThreeSizes)));
  EXPECT_EQ(json.at("recommendedWorldSize"), 4);
  EXPECT_EQ(json.at("sizes").size(), 3U);
  EXPECT_EQ(json.at("sizes")[1].at("efficiency"), 0.9);
  EXPECT_EQ(json.at("sizes")[1].at("time"), "2026-01-02T03:09:30Z");
  EXPECT_THAT(json.at("recommendation").get<std::string>(), HasSubstr("4 ranks"));
  EXPECT_FALSE(ScalingToJson(Read(RunningJob())).contains("recommendedWorldSize"));
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
