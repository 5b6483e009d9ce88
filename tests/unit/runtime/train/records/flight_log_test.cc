#include "runtime/train/records/flight_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iterator>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrace =
    R"({"entries":[{"pg_id":0,"collective_seq_id":3,"profiling_name":"nccl:all_reduce","state":"scheduled"}]})";

class FlightLogTest : public ::testing::Test {
 protected:
  FlightLogTest() { LOCKSTEP_CHECK(::mkdtemp(folder_.data()) != nullptr); }
  ~FlightLogTest() override { fs::remove_all(folder_); }

  std::string folder_ = (fs::temp_directory_path() / "flight-XXXXXX").string();
};

TEST_F(FlightLogTest, StoresTheTraceByRoundAndRank) {
  { FlightLog("file://" + folder_).Keep({7, 2, kTrace, {}}); }
  const Result<std::string> stored = ReadFile(folder_ + "/flight/round-7-rank-2.json");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_NE(stored->find(R"("collective_seq_id":3)"), std::string::npos) << *stored;
}

TEST_F(FlightLogTest, StoresSoManyAndNoMore) {
  {
    FlightLog log("file://" + folder_);
    for (int64_t round = 1; round <= 30; ++round) log.Keep({round, 0, kTrace, {}});
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/flight"), {}), 20);
  EXPECT_TRUE(fs::exists(folder_ + "/flight/round-1-rank-0.json"));
}

TEST_F(FlightLogTest, StoresNothingOfAnEmptyTrace) {
  { FlightLog("file://" + folder_).Keep({1, 0, R"({"version":"2.10"})", {}}); }
  EXPECT_FALSE(fs::exists(folder_ + "/flight"));
}

}  // namespace
}  // namespace lockstep::train
