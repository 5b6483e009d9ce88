#include "runtime/comm/torch_error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <string>

#include "runtime/common/base/error_exception.h"

namespace lockstep::comm {
namespace {

std::string FirstLine(std::string text) {
  if (const std::size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return text;
}

constexpr std::string_view kDeviceLosses[] = {
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "GPU is lost",
};

// Other CUDA errors, such as an invalid argument or lack of memory, leave the process usable.
constexpr std::string_view kDeviceFaults[] = {
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "hardware stack error",
    "unspecified launch failure",
    "the launch timed out and was terminated",
    "context is destroyed",
    "CUDA error: unknown error",
    "unhandled cuda error",  // from NCCL, whose calls then fail, too
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_EXECUTION_FAILED",
};

constexpr std::string_view kBrokenGroups[] = {"NCCL error", "NCCL communicator was aborted"};

bool SaysAny(std::string_view message, std::span<const std::string_view> texts) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](std::string_view text) { return message.find(text) != std::string_view::npos; });
}

Error ErrorFrom(std::string_view what, ErrorCode code, std::string_view context) {
  return Error{CodeOfDeviceError(what, code), FirstLine(std::string(what))}.WithContext(context);
}

}  // namespace

ErrorCode CodeOfDeviceError(std::string_view message, ErrorCode otherwise) {
  if (SaysAny(message, kDeviceLosses)) return ErrorCode::kDeviceLost;
  if (SaysAny(message, kDeviceFaults)) return ErrorCode::kDeviceFault;
  if (SaysAny(message, kBrokenGroups)) return ErrorCode::kAborted;
  return otherwise;
}

Error CurrentException(ErrorCode code, std::string_view context) {
  try {
    throw;
  } catch (const ErrorException& thrown) {
    return thrown.error().WithContext(context);
  } catch (const c10::OutOfMemoryError& error) {
    // "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …": the numbers after the first sentence
    // vary.
    const std::string text = FirstLine(error.what_without_backtrace());
    return Error{code, text.substr(0, text.find(" GPU "))}.WithContext(context);
  } catch (const c10::Error& error) {
    return ErrorFrom(error.what_without_backtrace(), code, context);
  } catch (const std::bad_alloc&) {
    return Error{code, "out of memory"}.WithContext(context);
  } catch (const std::exception& error) {
    return ErrorFrom(error.what(), code, context);
  } catch (...) {
    return Error{code, "unknown exception"}.WithContext(context);
  }
}

}  // namespace lockstep::comm
