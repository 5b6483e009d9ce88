#include "runtime/launch/run/node_list.h"

#include <gmock/gmock.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExpandNodeList, NamesEveryMachine) {
  EXPECT_THAT(*ExpandNodeList("gpu-05"), ElementsAre("gpu-05"));
  EXPECT_THAT(*ExpandNodeList("node[1-3,7],gpu-05"),
              ElementsAre("node1", "node2", "node3", "node7", "gpu-05"));
  EXPECT_THAT(*ExpandNodeList("b,a"), ElementsAre("b", "a")) << "in their order, which is that of the ranks";
}

TEST(ExpandNodeList, KeepsZerosAndWhatFollowsTheBrackets) {
  EXPECT_THAT(*ExpandNodeList("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(*ExpandNodeList("n[9-10].rack.example"), ElementsAre("n9.rack.example", "n10.rack.example"));
  EXPECT_THAT(*ExpandNodeList("r[1-2]n[0,4]"), ElementsAre("r1n0", "r1n4", "r2n0", "r2n4"));
}

TEST(ExpandNodeList, GoesUpToTenThousand) {
  const auto most = ExpandNodeList("n[0000-9999]");
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most->size(), kMostMachines);
  EXPECT_EQ(most->back(), "n9999");
}

TEST(ExpandNodeList, RefusesWhatIsNoList) {
  const std::string long_name(300, 'n');
  for (const std::string text : {"",
                                 ",",
                                 "a,",
                                 ",a",
                                 "n[",
                                 "n]",
                                 "n[1-2",
                                 "n1-2]",
                                 "n[[1-2]]",
                                 "n[]",
                                 "n[1-]",
                                 "n[-2]",
                                 "n[3-1]",
                                 "n[1,,2]",
                                 "n[a-b]",
                                 "n[1-2-3]",
                                 "n[+1]",
                                 "n[0x1-2]",
                                 "n[99999999999999999999]",
                                 "n 1",
                                 "n\n1",
                                 "n;rm",
                                 "http://n",
                                 "n/1",
                                 "-n",
                                 ".n",
                                 "[1-2],-n",
                                 "n\xc3\xa9",
                                 long_name.c_str()}) {
    const auto nodes = ExpandNodeList(text);
    EXPECT_FALSE(nodes.ok()) << text;
  }
  EXPECT_THAT(ExpandNodeList("n[3-1]").error().message,
              HasSubstr("\"3-1\" is not a number or a range of numbers"));
}

TEST(ExpandNodeList, RefusesMoreThanAnyJobHasBeforeItMakesThem) {
  for (const std::string text : {"n[0-10000]", "n[0-999999999]", "n[1-9999]m[1-9999]", "n[0-9999],m",
                                 "n[1-99][1-99][1-99][1-99][1-99][1-99]"}) {
    const auto nodes = ExpandNodeList(text);
    ASSERT_FALSE(nodes.ok()) << text;
    EXPECT_THAT(nodes.error().message, HasSubstr("more than 10000 machines")) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch
