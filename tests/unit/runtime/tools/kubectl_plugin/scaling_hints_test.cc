#include "runtime/tools/kubectl_plugin/scaling_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ScalingHintsFor, SaysHowToMeasureAnotherSize) {
  EXPECT_THAT(ScalingHintsFor(Read(RunningJob())).measure_more,
              StartsWith("To measure another size, scale the job (`kubectl lockstep scale fashion PODS`)"));
  Json fixed = RunningJob();
  fixed["spec"].erase("elasticPolicy");
  EXPECT_THAT(ScalingHintsFor(Read(fixed)).measure_more, HasSubstr("give it spec.elasticPolicy"));
}

TEST(ScalingHintsFor, SaysWhyNothingIsMeasured) {
  EXPECT_EQ(ScalingHintsFor(Read(RunningJob())).nothing_measured,
            "Not measured yet: that takes at least 10 steps and 10 s of training in one round.");
  Json program = RunningJob();
  program["spec"].erase("training");
  EXPECT_THAT(ScalingHintsFor(Read(program)).nothing_measured,
              HasSubstr("known only if it joins with the Python package"));
}

TEST(ScalingHintsFor, OffersNothingForAJobThatHasEnded) {
  const Json ended = With(RunningJob(), "/status/conditions",
                          R"([{"type": "Complete", "status": "True", "reason": "TrainingDone", "message": "",
                               "lastTransitionTime": "2026-01-02T03:00:03Z"}])");
  EXPECT_EQ(ScalingHintsFor(Read(ended)).measure_more, "");
  EXPECT_THAT(ScalingHintsFor(Read(ended)).nothing_measured, HasSubstr("has ended"));
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
