#pragma once
// The part of NVIDIA's management library (NVML) that gpu_reader uses, loaded from the driver's library when
// a pod starts, so neither the build nor a machine without GPUs needs anything from NVIDIA. Types, values and
// function names are those of nvml.h in CUDA toolkit 13 (docs.nvidia.com/deploy/nvml-api), which keeps them
// for old programs: a changed function gets a new name, `_v2`. Any thread.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::telemetry::nvml {

using Device = void*;    // nvmlDevice_t
using EventSet = void*;  // nvmlEventSet_t

inline constexpr int kSuccess = 0;                  // NVML_SUCCESS
inline constexpr int kTemperatureOfGpu = 0;         // NVML_TEMPERATURE_GPU
inline constexpr int kUncorrectedErrors = 1;        // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
inline constexpr int kSinceDriverLoaded = 0;        // NVML_VOLATILE_ECC
inline constexpr unsigned long long kXidEvent = 8;  // nvmlEventTypeXidCriticalError
inline constexpr unsigned kLongestText = 96;        // NVML_DEVICE_UUID_V2_BUFFER_SIZE, and that of names

// nvmlUtilization_t: percent of the last sample period in which a kernel ran, or memory was accessed.
struct Utilization {
  unsigned gpu;
  unsigned memory;
};
// nvmlMemory_t, bytes.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
// nvmlEventData_t.
struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;  // for a kXidEvent its number
  unsigned gpu_instance;
  unsigned compute_instance;
};

// Each function returns kSuccess or an error number.
struct Library {
  int (*init)();
  int (*shutdown)();
  const char* (*error_text)(int error);
  int (*count)(unsigned* count);
  int (*device_at)(unsigned index, Device* device);
  int (*device_of_uuid)(const char* uuid, Device* device);
  int (*uuid)(Device device, char* text, unsigned length);
  int (*name)(Device device, char* text, unsigned length);
  int (*utilization)(Device device, Utilization* utilization);
  int (*memory)(Device device, Memory* memory);
  int (*power)(Device device, unsigned* milliwatts);
  int (*temperature)(Device device, int sensor, unsigned* celsius);
  int (*ecc_errors)(Device device, int error_type, int counter_type, unsigned long long* count);
  int (*make_event_set)(EventSet* set);
  int (*register_events)(Device device, unsigned long long types, EventSet set);
  int (*wait_for_event)(EventSet set, EventData* event, unsigned timeout_milliseconds);
  int (*free_event_set)(EventSet set);
};

// Loads the library, which is never unloaded. kNotFound, with the reason: it does not exist, or lacks a
// function.
[[nodiscard]] Result<Library> Load(const std::string& path);

}  // namespace lockstep::telemetry::nvml
