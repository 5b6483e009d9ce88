#pragma once
// Result<T>: a value or an Error, which cannot be ignored silently. LOCKSTEP_TRY passes an error to the
// caller. LOCKSTEP_CHECK ends the process if an invariant is violated, with the place and the condition.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

#include "runtime/common/base/error.h"

namespace lockstep {

#define LOCKSTEP_CHECK(condition, ...)                                                   \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::lockstep::FailCheck(__FILE__, __LINE__, #condition, ::std::string{__VA_ARGS__}); \
  } while (false)

[[noreturn]] inline void FailCheck(const char* file, int line, const char* condition,
                                   const std::string& detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s %s\n", file, line, condition, detail.c_str());
  std::abort();
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(*-explicit-*)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(*-explicit-*)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] explicit operator bool() const { return ok(); }

  [[nodiscard]] const T& value() const& {
    LOCKSTEP_CHECK(ok(), ok() ? "" : error().ToString());
    return std::get<0>(state_);
  }
  [[nodiscard]] T& value() & {
    LOCKSTEP_CHECK(ok(), ok() ? "" : error().ToString());
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    LOCKSTEP_CHECK(ok(), ok() ? "" : error().ToString());
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }
  [[nodiscard]] Result WithContext(std::string_view context) && {
    if (ok()) return std::move(*this);
    return error().WithContext(context);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT(*-explicit-*)

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] explicit operator bool() const { return ok_; }
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] Result WithContext(std::string_view context) && {
    if (ok_) return {};
    return error_.WithContext(context);
  }

 private:
  Error error_;
  bool ok_ = true;
};

#define LOCKSTEP_CONCAT_INNER(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_INNER(a, b)
#define LOCKSTEP_TRY_VOID(result, expression) \
  do {                                        \
    auto result = (expression);               \
    if (!result.ok()) return result.error();  \
  } while (false)
#define LOCKSTEP_TRY_VALUE(result, declaration, ...) \
  auto result = (__VA_ARGS__);                       \
  if (!result.ok()) return result.error();           \
  declaration = std::move(result).value()
#define LOCKSTEP_TRY_PICK(_1, _2, _3, _4, name, ...) name
// LOCKSTEP_TRY(Write(x));            returns the error from the current function
// LOCKSTEP_TRY(auto y, Read(x));     declares y, or returns the error
#define LOCKSTEP_TRY_1(expression) LOCKSTEP_TRY_VOID(LOCKSTEP_CONCAT(try_result_, __LINE__), expression)
#define LOCKSTEP_TRY_2(declaration, ...) \
  LOCKSTEP_TRY_VALUE(LOCKSTEP_CONCAT(try_result_, __LINE__), declaration, __VA_ARGS__)
#define LOCKSTEP_TRY(...)                                                                          \
  LOCKSTEP_TRY_PICK(__VA_ARGS__, LOCKSTEP_TRY_2, LOCKSTEP_TRY_2, LOCKSTEP_TRY_2, LOCKSTEP_TRY_1, ) \
  (__VA_ARGS__)

}  // namespace lockstep
