#include "runtime/common/api/program_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(ExpandReferences, IsKubernetesOwn) {
  const Variables variables{{"A", "1"}, {"EMPTY", ""}};
  const struct {
    const char* text;
    const char* expanded;
  } cases[] = {
      {"$(A)", "1"},          {"x$(A)y$(A)", "x1y1"}, {"$(EMPTY)", ""}, {"$(B)", "$(B)"}, {"$$(A)", "$(A)"},
      {"$A ${A}", "$A ${A}"}, {"$(A", "$(A"},         {"100$", "100$"}, {"$$$$", "$$"},   {"", ""}};
  for (const auto& test : cases)
    EXPECT_EQ(ExpandReferences(test.text, variables), test.expanded) << test.text;
}

TEST(ProgramStartOf, ReadsTheTrainersCommandAsAKubeletDoes) {
  const WorkerSpec worker{.pod_template = *ParseJson(R"json({"spec": {"containers": [
    {"name": "side", "command": ["sleep"]},
    {"name": "trainer", "command": ["python3", "train.py"], "args": ["--out", "$(OUT)", "$(LOCKSTEP_SLOT)"],
     "env": [{"name": "BASE", "value": "/data"}, {"name": "OUT", "value": "$(BASE)/out"},
             {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}]}})json")};
  const ProgramStart start = ProgramStartOf(worker, {{"LOCKSTEP_SLOT", "2"}});
  EXPECT_THAT(start.words, testing::ElementsAre("python3", "train.py", "--out", "/data/out", "2"));
  EXPECT_THAT(start.environment,
              testing::ElementsAre(testing::Pair("BASE", "/data"), testing::Pair("OUT", "/data/out")));
  EXPECT_THAT(start.left_out, testing::ElementsAre("IP"));
}

TEST(ProgramStartOf, IsEmptyWithoutTheContainer) {
  EXPECT_TRUE(ProgramStartOf({.container_name = "main"}, {}).words.empty());
}

}  // namespace
}  // namespace lockstep::api
