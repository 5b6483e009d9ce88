#include "runtime/comm/torch_error.h"

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace lockstep::comm {
namespace {

std::string FirstLine(std::string text) {
  if (const std::size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return text;
}

}  // namespace

Error CurrentException(ErrorCode code, std::string_view context) {
  try {
    throw;
  } catch (const c10::Error& error) {
    return Error{code, FirstLine(error.what_without_backtrace())}.WithContext(context);
  } catch (const std::exception& error) {
    return Error{code, FirstLine(error.what())}.WithContext(context);
  } catch (...) {
    return Error{code, "unknown exception"}.WithContext(context);
  }
}

}  // namespace lockstep::comm
