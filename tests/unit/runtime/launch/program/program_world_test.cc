#include "runtime/launch/program/program_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(JaxEnvironment, NamesTheCoordinatorAndThePlaceInTheWorld) {
  const protocol::RankAssignment place{
      .rank = 5, .world = 6, .local_rank = 1, .store_host = "fd00::1", .store_port = 29501};
  EXPECT_THAT(JaxEnvironment(place, 2),
              ::testing::ElementsAre("JAX_COORDINATOR_ADDRESS=[fd00::1]:29501", "JAX_NUM_PROCESSES=6",
                                     "JAX_PROCESS_ID=5", "JAX_LOCAL_DEVICE_IDS=1"));
  EXPECT_THAT(JaxEnvironment(place, 1), ::testing::SizeIs(3))
      << "the only rank of a pod has all of its devices";
}

TEST(Hostfile, ListsEachHostOnce) {
  EXPECT_EQ(HostfileOf({"10.0.0.2", "10.0.0.1"}, 8), "10.0.0.2 slots=8\n10.0.0.1 slots=8\n");
  EXPECT_EQ(HostfileOf({"127.0.0.1", "127.0.0.1"}, 2), "127.0.0.1 slots=4\n");
  EXPECT_EQ(HostfileOf({}, 2), "");
}

}  // namespace
}  // namespace lockstep::launch
