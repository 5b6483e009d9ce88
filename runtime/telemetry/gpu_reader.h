#pragma once
// What NVIDIA's driver says of the GPUs that a pod's ranks use. One thread; a call can take as long as the
// driver does.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::telemetry {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";  // part of the driver

// Of one GPU. Absent is what it does not tell: some never have ECC, a slice of one (MIG) knows its memory
// alone, one that is lost nothing.
struct GpuReading {
  int gpu = 0;         // its number in the pod, as CUDA counts
  int local_rank = 0;  // whose it is
  std::string uuid;
  std::string name;
  std::optional<double> utilization;  // 0 to 1: share of time in which a kernel ran
  std::optional<double> memory_used_bytes;
  std::optional<double> memory_total_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> ecc_errors;  // that could not be corrected, since the driver was loaded
  std::vector<uint64_t> xids;        // critical errors that the driver reported since the last reading
};

struct GpuSelection {
  // CUDA_VISIBLE_DEVICES: numbers as the driver counts, or UUIDs; absent: it is not set, all are visible.
  std::optional<std::string> visible;
  std::size_t most = 0;   // of those the first so many
  std::size_t ranks = 1;  // of the pod, in order, each with an equal share
};

class GpuReader {
 public:
  // kNotFound, with the reason, where there is no driver, or none of the GPUs.
  [[nodiscard]] static Result<std::unique_ptr<GpuReader>> Open(const std::string& library,
                                                               const GpuSelection& selection);
  ~GpuReader();

  [[nodiscard]] std::vector<GpuReading> Read();

 private:
  struct State;
  explicit GpuReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::telemetry
