#include "runtime/tools/kubectl_plugin/rank_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tools/kubectl_plugin/pod_rows.h"
#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// From the output of `kubectl logs --prefix`.
RankPlaces PlacesOf(const std::vector<std::string>& lines) {
  RankPlaces places;
  for (const std::string& line : lines) {
    if (const auto of_pod = SplitPrefix(line)) places.Take(*of_pod);
  }
  return places;
}

std::string Placed(const std::string& pod, int rank, int round) {
  return "[pod/" + pod +
         R"(/trainer] {"time":"2026-01-02T03:04:05.0Z","level":"info","message":"rank placed",)" +
         R"("job":"j","pod":")" + pod + R"(","local_rank":0,"rank":)" + std::to_string(rank) +
         R"(,"round":)" + std::to_string(round) + "}";
}

TEST(RankNamedIn, ReadsLabelsAndFields) {
  const auto named = [](const char* line) {
    const auto found = RankNamedIn(line);
    return found ? std::to_string(found->rank) + " in " + std::to_string(found->round) : "none";
  };
  EXPECT_EQ(named("[rank 12 round 5] [rank 3 round 9] text"), "12 in 5");
  EXPECT_EQ(named(R"({"rank":2,"round":5,"message":"round broken"})"), "2 in 5");
  for (const char* line :
       {"", "text", "[local rank 0] text", "[rank x round 5] text", "[rank 1 round 5]text", "[rank 1] text",
        R"({"round":5,"message":"leaving the round"})", R"({"rank":"2","round":5})", R"({"rank":2,"round":)",
        R"({"local_rank":1,"pid":7})"})
    EXPECT_EQ(named(line), "none") << line;
}

TEST(RankPlaces, FollowsARankFromPodToPod) {
  const RankPlaces places = PlacesOf({Placed("j-worker-0", 0, 1), Placed("j-worker-1", 1, 1),
                                      Placed("j-worker-2", 2, 1), "[pod/j-worker-1/trainer] worker ends",
                                      Placed("j-worker-0", 0, 2), Placed("j-worker-2", 1, 2)});
  ASSERT_TRUE(places.PodOf(1).has_value());
  EXPECT_EQ(places.PodOf(1)->pod, "j-worker-2") << "it had rank 1 in a later round than j-worker-1";
  EXPECT_EQ(places.PodOf(1)->round, 2);
  EXPECT_FALSE(places.PodOf(2).has_value()) << "j-worker-2 is another rank now";
  EXPECT_EQ(places.newest_round(), 2);
  EXPECT_THAT(places.RanksOf("j-worker-1"), IsEmpty()) << "it has no place in the newest round";
  EXPECT_THAT(places.RanksOf("j-worker-2"), ElementsAre(1));
}

TEST(RankPlaces, FindsSeveralRanksOfAPod) {
  const RankPlaces places =
      PlacesOf({Placed("a", 0, 3), Placed("a", 1, 3), "[pod/b/trainer] [rank 3 round 3] hello",
                Placed("a", 7, 2), "error: container is waiting to start"});
  EXPECT_THAT(places.RanksOf("a"), ElementsAre(0, 1)) << "what an older round said comes too late";
  EXPECT_EQ(places.PodOf(3)->pod, "b");
}

TEST(MayBeOfRank, LeavesOutWhatIsTheOthersOfThePod) {
  EXPECT_EQ(PlacesOf({Placed("a", 3, 1)}).PodOf(3)->local_rank, 0);
  EXPECT_FALSE(PlacesOf({"[pod/b/trainer] [rank 3 round 3] hello"}).PodOf(3)->local_rank.has_value());
  for (const char* line :
       {"[rank 3 round 1] text", R"({"rank":3,"round":1,"local_rank":"1"})", "[local rank 1] text",
        R"({"message":"rank entered the round","local_rank":1,"round":1})", R"({"local_rank":"1"})",
        R"({"message":"serving metrics"})", "text", R"({"local_rank":"x"})", R"({"local_rank":null})"})
    EXPECT_TRUE(MayBeOfRank(line, 3, 1)) << line;
  for (const char* line :
       {"[rank 2 round 1] text", R"({"rank":2,"round":1,"local_rank":"1"})", "[local rank 0] text",
        R"({"message":"rank entered the round","local_rank":0,"round":1})", R"({"local_rank":"0"})"})
    EXPECT_FALSE(MayBeOfRank(line, 3, 1)) << line;
  EXPECT_TRUE(MayBeOfRank("[local rank 0] text", 3, {})) << "the process is not known";
}

TEST(SplitPrefix, TakesOnlyWhatKubectlWrote) {
  EXPECT_EQ(SplitPrefix("[pod/a/trainer] [b] c")->line, "[b] c");
  EXPECT_FALSE(SplitPrefix("[pod/a").has_value());
  EXPECT_FALSE(SplitPrefix("[pod/a] b/c").has_value());
  EXPECT_FALSE(SplitPrefix("error: x").has_value());
}

TEST(PodRows, ComeByRankWithTheirState) {
  std::vector<PodRow> rows = PodRowsFrom(PodList(), "trainer");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].state, "Running") << "of the trainer's container, not of its neighbour";
  EXPECT_TRUE(rows[0].is_ready);
  EXPECT_EQ(rows[2].state, "ImagePullBackOff");
  EXPECT_EQ(rows[2].node, "");
  SortByRank(rows, PlacesOf({Placed("fashion-worker-1", 0, 5), Placed("fashion-worker-0", 2, 5)}));
  EXPECT_EQ(rows[0].name, "fashion-worker-1");
  EXPECT_EQ(rows[2].name, "fashion-worker-2") << "without a rank";
}

TEST(RanksText, JoinsNeighbours) {
  EXPECT_EQ(RanksText({}), "");
  EXPECT_EQ(RanksText({4}), "4");
  EXPECT_EQ(RanksText({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace lockstep::kubectl_plugin
