#include "runtime/tools/kubectl_plugin/event_table.h"

#include <gtest/gtest.h>

#include "runtime/common/base/time_text.h"
#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

command_line::Lines Table(const std::string& items) {
  std::vector<std::string> violations;
  const api::TrainingJob job = api::TrainingJobFromJson(RunningJob(), violations);
  return EventTable(Json::parse("{\"items\": [" + items + "]}"), job, *ParseTime("2026-01-02T03:10:00Z"));
}

TEST(EventTable, IsInTheOrderOfTheNewestTimes) {
  const command_line::Lines lines = Table(R"(
      {"type": "Warning", "reason": "New", "message": "of the\nnew API", "eventTime": "2026-01-02T03:00:00.5Z",
       "series": {"count": 7, "lastObservedTime": "2026-01-02T03:09:00Z"},
       "involvedObject": {"kind": "DistributedTrainingJob", "name": "fashion", "uid": "6f0c"}},
      {"type": "Normal", "reason": "Old", "message": "of the old one", "lastTimestamp": "2026-01-02T03:08:20Z",
       "involvedObject": {"kind": "Pod", "name": "fashion-worker-12"}})");
  EXPECT_EQ(lines,
            (command_line::Lines{"AGO         TYPE     REASON  OBJECT             TIMES  MESSAGE",
                                 "1 min 40 s  Normal   Old     fashion-worker-12  1      of the old one",
                                 "1 min       Warning  New     fashion            7      of the"}));
}

TEST(EventTable, LeavesOutOtherObjects) {
  EXPECT_EQ(Table(""), command_line::Lines());
  EXPECT_EQ(Table(R"(
      {"involvedObject": {"kind": "DistributedTrainingJob", "name": "fashion", "uid": "of another"}},
      {"involvedObject": {"kind": "Service", "name": "fashion-worker-1"}},
      {"involvedObject": {"kind": "Pod", "name": "fashion-worker-"}},
      {"involvedObject": {"kind": "Pod", "name": "fashion-worker-1x"}},
      {"involvedObject": {"kind": "Pod", "name": "fashion-2-worker-1"}},
      {"reason": "no object"})"),
            command_line::Lines());
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
