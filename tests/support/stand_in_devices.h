#pragma once
// Four devices that compute on the CPU, in memory of their own. An operation on tensors of different devices is
// rejected, as with GPUs. They are of a type for which LibTorch has no code of its own, and to which modules can
// be moved (at::kHPU). Operations that are not defined here are computed by LibTorch's fallback, on copies in
// host memory.
//
// A program that links this library has them. Random numbers of operations are those of the CPU.

#include <c10/core/Device.h>

namespace lockstep::testing {

constexpr c10::DeviceIndex kStandInDevices = 4;

[[nodiscard]] c10::Device StandInDevice(c10::DeviceIndex index);

}  // namespace lockstep::testing
