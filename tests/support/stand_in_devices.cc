#include "tests/support/stand_in_devices.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <vector>

namespace lockstep::testing {
namespace {

constexpr at::DeviceType kType = at::kHPU;

thread_local c10::DeviceIndex current_device = 0;

// Work is done when it is called, so there is one stream, and events are there at once.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr at::DeviceType static_type = kType;

  at::DeviceType type() const override { return kType; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(at::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(at::Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(at::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool /*is_high_priority*/) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kStandInDevices; }
  void record(void** /*event*/, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {}
};
C10_REGISTER_GUARD_IMPL(HPU, Guard)

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    void* const data = memory.get();
    return {data, memory.release_context(), memory.get_deleter(), at::Device(kType, current_device)};
  }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};
Memory memory;
REGISTER_ALLOCATOR(kType, &memory)

// LibTorch finds them by this name.
struct HPUHooks final : at::HPUHooksInterface {
  explicit HPUHooks(at::HPUHooksArgs /*none*/) {
    for (c10::DeviceIndex i = 0; i < kStandInDevices; ++i)
      generators.push_back(at::detail::createCPUGenerator());
  }
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kStandInDevices; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return generators.at(static_cast<std::size_t>(device < 0 ? current_device : device));
  }
  // Host memory is within reach of each of these devices.
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }

  std::vector<at::Generator> generators;
};
using at::HPUHooksRegistry;
using at::RegistererHPUHooksRegistry;
REGISTER_HPU_HOOKS(HPUHooks);

// The same memory, as a tensor of the CPU.
at::Tensor OnHost(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on_device(device);
  return at::detail::empty_generic(sizes, &memory, c10::DispatchKeySet(c10::DispatchKey::HPU),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                        std::optional<bool> /*pinned*/) {
  const c10::OptionalDeviceGuard on_device(device);
  return at::detail::empty_strided_generic(
      sizes, strides, &memory, c10::DispatchKeySet(c10::DispatchKey::HPU), type.value_or(at::kFloat));
}

at::Tensor CopyFrom(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  OnHost(target).copy_(OnHost(source));
  return target;
}

at::Tensor CopyFromAndResize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return CopyFrom(source, target, /*non_blocking=*/false);
}

at::Scalar LocalScalar(const at::Tensor& tensor) { return OnHost(tensor).item(); }

void RecordStream(at::Tensor& tensor, c10::Stream stream) {
  TORCH_CHECK(tensor.device() == stream.device(), "the stream is of another device");
}

// As the kernels of a device do, and unlike the fallback alone, which takes tensors of any.
void ComputeOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<at::Device> device;
  const auto expect_same = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
    TORCH_CHECK(!device || *device == tensor.device(), op.schema().operator_name(),
                ": expected all tensors on one device, but found ", *device, " and ", tensor.device());
    device = tensor.device();
  };
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) expect_same(argument.toTensor());
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) expect_same(tensor);
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&ComputeOnHost>());
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("_local_scalar_dense", &LocalScalar);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("resize_", &at::native::resize_);
  library.impl("record_stream", &RecordStream);
  library.impl("set_.source_Storage",
               static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
}

}  // namespace

c10::Device StandInDevice(c10::DeviceIndex index) { return {kType, index}; }

}  // namespace lockstep::testing
