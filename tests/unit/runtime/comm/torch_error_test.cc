#include "runtime/comm/torch_error.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>

#include "runtime/common/base/error_exception.h"

namespace lockstep::comm {
namespace {

// Texts of CUDA, PyTorch and NCCL.
TEST(CodeOfDeviceError, DistinguishesALostDeviceFromAFault) {
  struct Case {
    const char* name;
    const char* message;
    ErrorCode code;
  };
  const Case cases[] = {
      {"IllegalAccess", "CUDA error: an illegal memory access was encountered", ErrorCode::kDeviceFault},
      {"Assert", "CUDA error: device-side assert triggered", ErrorCode::kDeviceFault},
      {"Launch", "CUDA error: unspecified launch failure", ErrorCode::kDeviceFault},
      {"Blas", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`",
       ErrorCode::kDeviceFault},
      {"NcclOnCuda", "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.28.9",
       ErrorCode::kDeviceFault},
      {"Ecc", "CUDA error: uncorrectable ECC error encountered", ErrorCode::kDeviceLost},
      {"NvLink", "CUDA error: uncorrectable NVLink error detected during the execution",
       ErrorCode::kDeviceLost},
      {"NoDevice", "CUDA error: no CUDA-capable device is detected", ErrorCode::kDeviceLost},
      {"NcclPeer",
       "NCCL error in: ProcessGroupNCCL.cpp:2356, remote process exited or there was a network error",
       ErrorCode::kAborted},
      {"NcclAbort", "NCCL communicator was aborted on rank 1.", ErrorCode::kAborted},
      {"Argument", "CUDA error: invalid argument", ErrorCode::kInternal},
      {"Memory", "CUDA out of memory. Tried to allocate 2.00 GiB.", ErrorCode::kInternal},
      {"Shape", "mat1 and mat2 shapes cannot be multiplied (32x100 and 784x64)", ErrorCode::kInternal},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(CodeOfDeviceError(c.message, ErrorCode::kInternal), c.code) << c.name;
  }
}

template <typename Exception>
Error Caught(const Exception& exception) {
  return CatchTorch(ErrorCode::kInternal, "forward pass", [&] { throw exception; }).error();
}

TEST(CatchTorch, GivesADeviceErrorItsCodeAndOneLine) {
  const c10::AcceleratorError fault({__func__, __FILE__, __LINE__}, 700,
                                    "CUDA error: an illegal memory access was encountered\nSearch for …");
  EXPECT_EQ(Caught(fault).code, ErrorCode::kDeviceFault);
  EXPECT_EQ(Caught(fault).message, "forward pass: CUDA error: an illegal memory access was encountered");
  EXPECT_EQ(Caught(std::runtime_error("CUDA error: uncorrectable ECC error encountered")).code,
            ErrorCode::kDeviceLost);
  EXPECT_EQ(Caught(std::runtime_error("labels are wrong")).code, ErrorCode::kInternal);
}

TEST(CatchTorch, LeavesAThrownErrorItsCode) {
  const Error caught = Caught(ErrorException({ErrorCode::kDataLoss, "cat.png is damaged"}));
  EXPECT_EQ(caught.code, ErrorCode::kDataLoss);
  EXPECT_EQ(caught.message, "forward pass: cat.png is damaged");
}

// The same words each time, so that a repetition is recognised.
TEST(CatchTorch, SaysThatMemoryIsShort) {
  EXPECT_EQ(Caught(std::bad_alloc()).message, "forward pass: out of memory");
  const c10::OutOfMemoryError device(
      {__func__, __FILE__, __LINE__},
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.31 GiB free.");
  EXPECT_EQ(Caught(device).code, ErrorCode::kInternal);
  EXPECT_EQ(Caught(device).message, "forward pass: CUDA out of memory. Tried to allocate 2.00 GiB.");
}

}  // namespace
}  // namespace lockstep::comm
