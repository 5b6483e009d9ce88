#pragma once
// Carries an Error as an exception, where only exceptions are possible: through LibTorch, and out of the
// threads that read data. The catcher gets the original code.

#include <exception>
#include <utility>

#include "runtime/common/base/error.h"

namespace lockstep {

class ErrorException final : public std::exception {
 public:
  explicit ErrorException(Error error) : error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

}  // namespace lockstep
