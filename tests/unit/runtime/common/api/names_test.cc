#include "runtime/common/api/names.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(Names, AreFunctionsOfJobAndSlot) {
  EXPECT_EQ(PodName("mnist", 3), "mnist-worker-3");
  EXPECT_EQ(ServiceName("mnist"), "mnist");
  EXPECT_EQ(ConfigMapName("mnist"), "mnist-config");
}

TEST(Names, TheLongestNameLeavesRoomForTheSlot) {
  EXPECT_LE(PodName(std::string(kMaxJobNameLength, 'a'), 9999).size(), 63u);
}

TEST(Names, SlotComesBackFromTheLabels) {
  EXPECT_EQ(SlotFromLabels(WorkerLabels("mnist", 12)), 12);
  EXPECT_EQ(SlotFromLabels({}), std::nullopt);
  EXPECT_EQ(SlotFromLabels({{"lockstep.dev/slot", "1x"}}), std::nullopt);
  EXPECT_EQ(SlotFromLabels({{"lockstep.dev/slot", "-1"}}), std::nullopt);
}

TEST(Names, TheSelectorNamesLabelsThatEveryWorkerHas) {
  EXPECT_EQ(WorkerSelector("mnist"), "app.kubernetes.io/name=lockstep-worker,lockstep.dev/job=mnist");
  EXPECT_EQ(WorkerLabels("mnist", 0).at("lockstep.dev/job"), "mnist");
}

}  // namespace
}  // namespace lockstep::api
