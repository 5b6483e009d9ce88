#include "runtime/telemetry/gpu_reader.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/telemetry/gpu_watch.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_nvml.h"

namespace lockstep::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kAll = 8;
constexpr unsigned long long kXid = 8;
constexpr unsigned long long kClockChange = 16;

// A driver with two GPUs and a slice (FakeDriver).
class GpuReaderTest : public ::testing::Test {
 protected:
  GpuReaderTest() {
    void* const library = ::dlopen(LOCKSTEP_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) driver_ = static_cast<FakeDriver*>(::dlsym(library, "driver"));
    if (driver_ == nullptr) throw std::runtime_error("no fake driver: " LOCKSTEP_FAKE_NVML);
    *driver_ = {};
    driver_->gpus[0] = {.uuid = "GPU-aa-1",
                        .name = "NVIDIA H200",
                        .utilization_percent = 75,
                        .memory_total = 1'000,
                        .memory_used = 250,
                        .milliwatts = 612'500,
                        .celsius = 61,
                        .ecc_errors = 3};
    driver_->gpus[1] = {.uuid = "GPU-bb-2", .name = "NVIDIA H200", .celsius = 62};
    driver_->gpus[2] = {.uuid = "MIG-cc-3", .name = "slice", .memory_total = 100, .is_slice = true};
  }

  static std::unique_ptr<GpuReader> Open(std::optional<std::string> visible = std::nullopt,
                                         std::size_t most = kAll, std::size_t ranks = 1) {
    auto gpus =
        GpuReader::Open(LOCKSTEP_FAKE_NVML, {.visible = std::move(visible), .most = most, .ranks = ranks});
    EXPECT_TRUE(gpus.ok()) << gpus.error().message;
    return gpus.ok() ? std::move(*gpus) : nullptr;
  }
  static std::vector<std::string> UuidsOf(const std::string& visible) {
    std::vector<std::string> uuids;
    for (const GpuReading& gpu : Open(visible)->Read()) uuids.push_back(gpu.uuid);
    return uuids;
  }
  static std::string WhyNot(const std::string& library, std::optional<std::string> visible = std::nullopt) {
    const auto gpus = GpuReader::Open(library, {.visible = std::move(visible), .most = kAll});
    return gpus.ok() ? "it was opened" : gpus.error().message;
  }

  FakeDriver* driver_ = nullptr;
};

TEST_F(GpuReaderTest, ReadsWhatTheDriverSaysInBaseUnits) {
  const std::vector<GpuReading> gpus = Open()->Read();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].gpu, 0);
  EXPECT_EQ(gpus[0].uuid, "GPU-aa-1");
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(gpus[0].utilization, 0.75);
  EXPECT_EQ(gpus[0].memory_used_bytes, 250);
  EXPECT_EQ(gpus[0].memory_total_bytes, 1'000);
  EXPECT_EQ(gpus[0].power_watts, 612.5);
  EXPECT_EQ(gpus[0].temperature_celsius, 61);
  EXPECT_EQ(gpus[0].ecc_errors, 3);
  EXPECT_EQ(gpus[1].gpu, 1);
  EXPECT_EQ(gpus[1].temperature_celsius, 62);
}

TEST_F(GpuReaderTest, TakesTheVisibleGpusInCudasOrder) {
  EXPECT_THAT(UuidsOf("1,0"), ElementsAre("GPU-bb-2", "GPU-aa-1"));
  EXPECT_THAT(UuidsOf("GPU-bb"), ElementsAre("GPU-bb-2"));  // the beginning of a UUID
  EXPECT_THAT(UuidsOf("1,7,0"), ElementsAre("GPU-bb-2"));   // CUDA stops at an invalid entry
  EXPECT_THAT(UuidsOf("MIG-cc-3"), ElementsAre("MIG-cc-3"));
}

TEST_F(GpuReaderTest, RanksShareTheGpusInOrder) {
  EXPECT_EQ(Open(std::nullopt, /*most=*/1)->Read().size(), 1U);
  const std::vector<GpuReading> one_each = Open(std::nullopt, /*most=*/2, /*ranks=*/2)->Read();
  EXPECT_EQ(one_each.at(0).local_rank, 0);
  EXPECT_EQ(one_each.at(1).local_rank, 1);
  EXPECT_EQ(Open(std::nullopt, /*most=*/2, /*ranks=*/1)->Read().at(1).local_rank, 0);
}

TEST_F(GpuReaderTest, WhatAGpuDoesNotReportIsAbsent) {
  driver_->gpus[1].has_ecc = false;
  const GpuReading without_ecc = Open()->Read().at(1);
  EXPECT_FALSE(without_ecc.ecc_errors.has_value());
  EXPECT_TRUE(without_ecc.power_watts.has_value());

  const GpuReading slice = Open("MIG-cc-3")->Read().at(0);
  EXPECT_EQ(slice.memory_total_bytes, 100);
  EXPECT_FALSE(slice.utilization.has_value());

  const auto gpus = Open();
  driver_->gpus[0].is_lost = true;
  const GpuReading lost = gpus->Read().at(0);
  EXPECT_EQ(lost.uuid, "GPU-aa-1");
  EXPECT_FALSE(lost.utilization || lost.memory_used_bytes || lost.memory_total_bytes || lost.power_watts ||
               lost.temperature_celsius || lost.ecc_errors);
}

TEST_F(GpuReaderTest, ReportsEachXidOnceAndForItsOwnGpu) {
  const auto gpus = Open("1");
  EXPECT_EQ(driver_->gpus[1].registered_events, kXid);
  EXPECT_EQ(driver_->gpus[0].registered_events, 0U) << "a GPU of another pod is watched";
  driver_->events = {{1, kXid, 48}, {1, kClockChange, 7}, {1, kXid, 79}};
  driver_->gpus[1].is_lost = true;  // and no longer reports its UUID
  EXPECT_THAT(gpus->Read().at(0).xids, ElementsAre(48, 79));
  EXPECT_THAT(gpus->Read().at(0).xids, IsEmpty());
}

TEST_F(GpuReaderTest, ADriverWithoutEventsReportsTheRest) {
  driver_->has_events = false;
  driver_->events = {{0, kXid, 48}};
  const GpuReading gpu = Open()->Read().at(0);
  EXPECT_THAT(gpu.xids, IsEmpty());
  EXPECT_EQ(gpu.temperature_celsius, 61);
}

TEST_F(GpuReaderTest, LeavesNothingOpen) {
  Open();
  EXPECT_THAT(WhyNot(LOCKSTEP_FAKE_NVML, ""), HasSubstr("no GPU"));
  EXPECT_EQ(driver_->users, 0);
  EXPECT_EQ(driver_->event_sets, 0);
}

TEST_F(GpuReaderTest, SaysWhyThereIsNothingToRead) {
  EXPECT_THAT(WhyNot("libnvidia-ml-not-here.so.1"), HasSubstr("libnvidia-ml-not-here.so.1"));
  EXPECT_THAT(WhyNot("libm.so.6"), HasSubstr("libm.so.6 has no nvmlInit_v2"));
  EXPECT_THAT(WhyNot(LOCKSTEP_FAKE_NVML, "-1"), HasSubstr("shows no GPU to this pod"));
  driver_->refuses = true;
  EXPECT_THAT(WhyNot(LOCKSTEP_FAKE_NVML), HasSubstr("Driver Not Loaded"));
}

TEST_F(GpuReaderTest, AWatchedGpuIsInTheMetrics) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  const GpuWatch watch(metrics, LOCKSTEP_FAKE_NVML, {.most = 1});
  EXPECT_TRUE(testing::Eventually([&] {
    return metrics.Scrape().body.find(
               "lockstep_gpu_power_watts{job_name=\"job\",namespace=\"lab\",gpu=\"0\",local_rank="
               "\"0\",replica=\"2\",uuid=\"GPU-aa-1\"} "
               "612.5\n") != std::string::npos;
  })) << metrics.Scrape().body;
}

TEST_F(GpuReaderTest, AMachineWithoutADriverHasNoGpuMetricsAndOneLineInTheLog) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  ::testing::internal::CaptureStderr();
  { const GpuWatch watch(metrics, "libnvidia-ml-not-here.so.1", {.most = 1}); }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("no metrics of GPUs"), HasSubstr("libnvidia-ml-not-here.so.1")));
  EXPECT_THAT(metrics.Scrape().body, Not(HasSubstr("lockstep_gpu")));
}

}  // namespace
}  // namespace lockstep::telemetry
