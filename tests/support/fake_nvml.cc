// A driver's libnvidia-ml.so.1 for tests. Signatures, structs and numbers are written down here once more,
// from nvml.h of the CUDA toolkit: a mistake in those of runtime/telemetry/nvml.h does not hide.

#include "tests/support/fake_nvml.h"

#include <cstring>

enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_GPU_IS_LOST = 15,
};
using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlEventSet_t = struct nvmlEventSet_st*;
struct nvmlUtilization_t {
  unsigned int gpu;
  unsigned int memory;
};
struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType;
  unsigned long long eventData;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
};

extern "C" {

FakeDriver driver{.gpus = {FakeGpu{.uuid = "GPU-aa-1", .name = "NVIDIA H200", .celsius = 61},
                           FakeGpu{.uuid = "GPU-bb-2", .name = "NVIDIA H200", .celsius = 62}}};

}  // extern "C"

namespace {

nvmlDevice_t HandleOf(FakeGpu& gpu) { return reinterpret_cast<nvmlDevice_t>(&gpu); }

// The GPU of a handle, if it answers.
FakeGpu* Living(nvmlDevice_t device) {
  auto* const gpu = reinterpret_cast<FakeGpu*>(device);
  return gpu == nullptr || gpu->is_lost ? nullptr : gpu;
}

nvmlReturn_t Write(nvmlDevice_t device, std::string FakeGpu::*member, char* text, unsigned length) {
  const FakeGpu* const gpu = Living(device);
  if (gpu == nullptr) return NVML_ERROR_GPU_IS_LOST;
  if ((gpu->*member).size() >= length) return NVML_ERROR_INVALID_ARGUMENT;
  std::strcpy(text, (gpu->*member).c_str());
  return NVML_SUCCESS;
}

template <typename Answer>
nvmlReturn_t Tell(nvmlDevice_t device, Answer answer) {
  const FakeGpu* const gpu = Living(device);
  if (gpu == nullptr) return NVML_ERROR_GPU_IS_LOST;
  if (gpu->is_slice) return NVML_ERROR_NOT_SUPPORTED;
  answer(*gpu);
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() {
  if (driver.refuses) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++driver.users;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
  --driver.users;
  return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t error) {
  return error == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 0;
  for (const FakeGpu& gpu : driver.gpus) {
    if (!gpu.uuid.empty() && !gpu.is_slice) ++*count;
  }
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (driver.gpus.at(index).is_lost) return NVML_ERROR_GPU_IS_LOST;
  *device = HandleOf(driver.gpus.at(index));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  for (FakeGpu& gpu : driver.gpus) {
    if (gpu.uuid != uuid) continue;
    *device = HandleOf(gpu);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return Write(device, &FakeGpu::uuid, uuid, length);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return Write(device, &FakeGpu::name, name, length);
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return Tell(device, [&](const FakeGpu& gpu) { *utilization = {gpu.utilization_percent, 99}; });
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const FakeGpu* const gpu = Living(device);
  if (gpu == nullptr) return NVML_ERROR_GPU_IS_LOST;
  *memory = {gpu->memory_total, gpu->memory_total - gpu->memory_used, gpu->memory_used};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return Tell(device, [&](const FakeGpu& gpu) { *power = gpu.milliwatts; });
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int* temperature) {
  if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
  return Tell(device, [&](const FakeGpu& gpu) { *temperature = gpu.celsius; });
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int error, int counter,
                                         unsigned long long* count) {
  constexpr int kUncorrected = 1;
  constexpr int kVolatile = 0;
  if (error != kUncorrected || counter != kVolatile) return NVML_ERROR_INVALID_ARGUMENT;
  if (Living(device) != nullptr && !Living(device)->has_ecc) return NVML_ERROR_NOT_SUPPORTED;
  return Tell(device, [&](const FakeGpu& gpu) { *count = gpu.ecc_errors; });
}
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  if (!driver.has_events) return NVML_ERROR_NOT_SUPPORTED;
  ++driver.event_sets;
  *set = reinterpret_cast<nvmlEventSet_t>(&driver);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
  if (set != reinterpret_cast<nvmlEventSet_t>(&driver)) return NVML_ERROR_INVALID_ARGUMENT;
  FakeGpu* const gpu = Living(device);
  if (gpu == nullptr) return NVML_ERROR_GPU_IS_LOST;
  gpu->registered_events |= types;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int) {
  if (set != reinterpret_cast<nvmlEventSet_t>(&driver)) return NVML_ERROR_INVALID_ARGUMENT;
  if (driver.events.empty()) return NVML_ERROR_TIMEOUT;
  const FakeEvent event = driver.events.front();
  driver.events.pop_front();
  *data = {HandleOf(driver.gpus.at(event.gpu)), event.type, event.data, ~0U, ~0U};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t) {
  --driver.event_sets;
  return NVML_SUCCESS;
}

}  // extern "C"
