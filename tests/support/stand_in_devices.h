#pragma once
// Four devices that compute on the CPU, in memory of their own: at::Device(at::kHPU, 0 to 3), for which
// LibTorch has no code of its own, and which its modules can be moved to. It rejects an operation on tensors of different devices, as with GPUs, so tests see whether all that meets is on
// one device. What is not written here is computed by LibTorch's fallback on copies in host memory.
//
// A program that links this library has them. Random numbers of operations are those of the CPU.

#include <c10/core/Device.h>

namespace lockstep::testing {

constexpr c10::DeviceIndex kStandInDevices = 4;

[[nodiscard]] c10::Device StandInDevice(c10::DeviceIndex index);

}  // namespace lockstep::testing
