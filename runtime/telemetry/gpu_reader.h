#pragma once
// Reads the state of the GPUs that a pod's ranks use from NVIDIA's driver. One thread; a call blocks as long
// as the driver does.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::telemetry {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";  // part of the driver

// The state of one GPU. Values that it does not report are absent: some GPUs have no ECC, a slice (MIG)
// reports its memory only, a lost GPU reports nothing.
struct GpuReading {
  int gpu = 0;         // its number in the pod in CUDA's order
  int local_rank = 0;  // the rank that uses it
  std::string uuid;
  std::string name;
  std::optional<double> utilization;  // 0 to 1: share of time in which a kernel ran
  std::optional<double> memory_used_bytes;
  std::optional<double> memory_total_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> ecc_errors;  // uncorrectable, since the driver was loaded
  std::vector<uint64_t> xids;        // critical errors that the driver reported since the last reading
};

struct GpuSelection {
  // CUDA_VISIBLE_DEVICES: indices of the driver, or UUIDs. Absent: not set, so all are visible.
  std::optional<std::string> visible;
  std::size_t most = 0;   // use at most this many of the visible ones
  std::size_t ranks = 1;  // of the pod; in order, each uses an equal share
};

class GpuReader {
 public:
  // kNotFound, with the reason, if there is no driver or none of the GPUs.
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
