#include "runtime/launch/supervisor/gpu_selection.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::launch {
namespace {

protocol::WorkerConfig PodWith(int gpus, int ranks, Json training = Json::object()) {
  protocol::WorkerConfig config;
  config.requested_gpus = gpus;
  config.nproc = ranks;
  config.training = std::move(training);
  return config;
}

std::size_t Watched(const protocol::WorkerConfig& config, bool is_program = false) {
  return GpusOf(config, is_program, std::nullopt).most;
}

TEST(GpusOf, TakesThoseThatTheRanksOpen) {
  EXPECT_EQ(Watched(PodWith(4, 4)), 4U);
  EXPECT_EQ(Watched(PodWith(4, 1)), 1U);  // cuda:0 alone
  for (const char* strategy : {"dataparallel", "modelparallel"})
    EXPECT_EQ(Watched(PodWith(4, 1, {{"strategy", strategy}})), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(Watched(PodWith(4, 1), /*is_program=*/true), 4U);
}

TEST(GpusOf, TakesNoneWhereTheRanksUseNone) {
  EXPECT_EQ(Watched(PodWith(0, 2)), 0U);
  EXPECT_EQ(Watched(PodWith(0, 2), /*is_program=*/true), 0U);
  EXPECT_EQ(Watched(PodWith(2, 2, {{"determinism", "World"}})), 0U);
}

TEST(GpusOf, KeepsWhatTheContainerIsShown) {
  const telemetry::GpuSelection gpus = GpusOf(PodWith(2, 2), false, "GPU-aa,GPU-bb");
  EXPECT_EQ(gpus.visible, "GPU-aa,GPU-bb");
  EXPECT_EQ(gpus.ranks, 2U);
}

}  // namespace
}  // namespace lockstep::launch
