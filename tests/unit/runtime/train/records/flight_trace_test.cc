#include "runtime/train/records/flight_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include <vector>

#include "runtime/common/base/json.h"
#include "tests/support/eventually.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kBegan = 1'790'000'000'000'000'000;

struct Collective {
  int64_t sequence = 0;
  bool has_ended = false;
  std::string name = "nccl:all_reduce";
  int64_t group = 0;
  [[nodiscard]] bool is_message() const { return name.starts_with("nccl:recv"); }
};

// As c10d of LibTorch 2.11 dumps a collective of NCCL without a watchdog: never retired, and never "started".
Json TraceEntry(const Collective& what, std::size_t record) {
  return {{"record_id", record},
          {"pg_id", what.group},
          {"process_group", {std::to_string(what.group), "undefined"}},
          {"thread_name", "lockstep-rank"},
          {"thread_id", "140737353932352"},
          {"collective_seq_id", what.is_message() ? 0 : what.sequence},
          {"p2p_seq_id", what.is_message() ? what.sequence : 0},
          {"op_id", record + 1},
          {"profiling_name", what.name},
          {"time_created_ns", kBegan + what.sequence},
          {"input_sizes", {{4, 3}}},
          {"input_dtypes", {"Float"}},
          {"output_sizes", {{4, 3}}},
          {"output_dtypes", {"Float"}},
          {"state", what.has_ended ? "completed" : "scheduled"},
          {"time_discovered_started_ns", 0},
          {"time_discovered_completed_ns", what.has_ended ? 1'790'000'000'000'000'001 : 0},
          {"retired", false},
          {"timeout_ms", 60000},
          {"is_p2p", what.is_message()}};
}

FlightTrace Read(const std::vector<Collective>& collectives, std::chrono::nanoseconds ended_before = {}) {
  Json entries = Json::array();
  for (const Collective& what : collectives) entries.push_back(TraceEntry(what, entries.size()));
  return ReadFlightTrace(DumpJson({{"version", "2.10"},
                                   {"comm_lib_version", "2.28.9"},
                                   {"pg_config", Json::object()},
                                   {"pg_status", Json::object()},
                                   {"nccl_comm_state", nullptr},
                                   {"entries", entries}}),
                         ended_before)
      .value();
}

std::vector<std::string> StatesIn(const FlightTrace& trace) {
  std::vector<std::string> states;
  const Json dump = ParseJson(trace.json).value();
  for (const Json& entry : dump.at("entries")) states.push_back(StringAt(entry, {"state"}));
  return states;
}

TEST(ReadFlightTrace, NamesTheOldestCollectiveThatHasNotEnded) {
  const FlightTrace trace = Read({{1, true}, {2, false, "nccl:broadcast"}, {3, false}});
  EXPECT_EQ(trace.collective, "nccl:broadcast");
  EXPECT_EQ(trace.sequence, 2);
  EXPECT_EQ(trace.state, "scheduled");
  EXPECT_EQ(trace.sizes, "[[4,3]]");
}

// Otherwise a collective of long ago would be reported: its event is that of one that has not ended.
TEST(ReadFlightTrace, KnowsThatAllBeforeOneThatEndedHaveEnded) {
  const FlightTrace trace = Read({{1, false}, {2, true}, {3, false}});
  EXPECT_EQ(trace.sequence, 3);
  EXPECT_THAT(StatesIn(trace), ElementsAre("completed", "completed", "scheduled"));
}

// As on a GPU where the one that has not ended has the event of all of them.
TEST(ReadFlightTrace, KnowsThatAllThatTheRankHasAwaitedHaveEnded) {
  const std::vector<Collective> collectives = {{1, false}, {2, false}, {3, false}, {4, false}};
  EXPECT_EQ(Read(collectives).sequence, 1);
  const FlightTrace trace = Read(collectives, std::chrono::nanoseconds(kBegan + 3));
  EXPECT_EQ(trace.sequence, 3);
  EXPECT_THAT(StatesIn(trace), ElementsAre("completed", "completed", "scheduled", "scheduled"));
}

TEST(ReadFlightTrace, InfersNothingAboutOneQueueFromAnother) {
  EXPECT_THAT(StatesIn(Read({{1, false}, {1, true, "nccl:recv 0<-1"}, {2, false, "nccl:recv 0<-2"}})),
              ElementsAre("scheduled", "completed", "scheduled"));
  EXPECT_THAT(StatesIn(Read({{1, false}, {1, true, "nccl:all_reduce", 1}})),
              ElementsAre("scheduled", "completed"));
}

TEST(ReadFlightTrace, CountsMessagesForThemselves) {
  EXPECT_EQ(Read({{5, false, "nccl:recv 0<-1"}}).sequence, 5);
}

TEST(ReadFlightTrace, NamesTheNewestWhereAllHaveEnded) {
  const FlightTrace trace = Read({{1, true}, {2, true}});
  EXPECT_EQ(trace.sequence, 2);
  EXPECT_EQ(trace.state, "completed");
}

TEST(ReadFlightTrace, LooksAtTheGroupOfTheNewestRound) {
  EXPECT_EQ(Read({{9, false, "nccl:all_reduce", 0}, {1, true, "nccl:all_reduce", 1}}).sequence, 1);
}

TEST(ReadFlightTrace, SaysThatNothingWasKept) {
  EXPECT_EQ(ReadFlightTrace(R"({"version":"2.10","pg_config":{}})").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(ReadFlightTrace("no JSON").ok());
}

TEST(ReadFlightTrace, ReadsWhatTheRecorderOfThisLibTorchDumps) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    const auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    const std::vector<int64_t> numbers = {1, 2, 3};
    REQUIRE((*communicator)->AllGather(numbers).ok());
    // c10d records the end of a collective after it has woken the waiting thread: until then the previous one
    // is shown.
    REQUIRE(testing::Eventually([] {
      const auto trace =
          ReadFlightTrace(c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false));
      return trace.ok() && trace->collective == "gloo:all_gather" && trace->sizes == "[[3]]";
    }));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train
